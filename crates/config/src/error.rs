//! What can be wrong with a configuration.

use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This configuration file.
    File(PathBuf),
    /// This environment variable.
    Variable(String),
    /// The program itself: a default, or a value that it set.
    Program,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Variable(name) => write!(f, "environment variable {name}"),
            Origin::Program => f.write_str("configuration"),
        }
    }
}

/// Why there is no configuration. Each message names the file or variable, the key, the value, and what is allowed.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// Neither a path was given nor does `CCPFS_CONFIG` hold one.
    #[error("no configuration file: give its path, or set CCPFS_CONFIG")]
    NoFile,
    /// The file cannot be read.
    #[error("{}: cannot read the configuration: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The file is no TOML, has an unknown key, or a value of the wrong kind.
    #[error("{}: {message}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        message: String,
    },
    /// A variable `CCPFS_<SECTION>_…` names no setting.
    #[error("environment variable {name}: there is no such setting; section '{section}' has {known}")]
    UnknownVariable {
        /// The variable.
        name: String,
        /// Its section.
        section: &'static str,
        /// The keys of the section.
        known: String,
    },
    /// A setting that is needed is not there.
    #[error("{origin}: {key} is missing: {allowed}")]
    Missing {
        /// Where it was looked for.
        origin: Origin,
        /// Section and key.
        key: &'static str,
        /// What is expected.
        allowed: String,
    },
    /// A setting has a value that it cannot have.
    #[error("{origin}: {key} = {value} is not allowed: {allowed}")]
    Value {
        /// Where the value comes from.
        origin: Origin,
        /// Section and key.
        key: String,
        /// The value as given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
}
