//! Sections of the configuration file: which keys there are, and how the environment overrides them.

use crate::error::{ConfigError, Origin};
use crate::size::{Bytes, BytesPerSecond};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Variables of the environment by name.
pub(crate) type Variables = BTreeMap<String, String>;

/// A kind of value that a variable can hold.
pub(crate) trait Setting: Sized {
    /// Reads it.
    ///
    /// # Errors
    /// What would have been allowed.
    fn from_text(text: &str) -> Result<Self, String>;
}

macro_rules! parsed {
    ($($type:ty => $allowed:expr),* $(,)?) => {$(
        impl Setting for $type {
            fn from_text(text: &str) -> Result<Self, String> {
                text.trim().parse().map_err(|_| $allowed.to_owned())
            }
        }
    )*};
}
parsed! {
    Bytes => "a size like 47008, 64KiB or 1.5MiB",
    BytesPerSecond => "a bandwidth like 500MiB/s",
    u32 => "a whole number below 2^32",
    u64 => "a whole number",
    bool => "true or false",
    String => "a text",
    PathBuf => "a path",
}

impl Setting for Vec<String> {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect())
    }
}

/// Name of the variable that overrides a key.
pub(crate) fn variable_name(section: &str, key: &str) -> String {
    format!("CCPFS_{}_{}", section.to_uppercase(), key.to_uppercase())
}

/// Takes the override of one key, if there is one, and removes it from `variables`.
pub(crate) fn take_override<T: Setting>(
    value: &mut Option<T>,
    section: &str,
    key: &str,
    variables: &mut Variables,
    overridden: &mut BTreeMap<String, String>,
) -> Result<(), ConfigError> {
    let name = variable_name(section, key);
    let Some(text) = variables.remove(&name) else { return Ok(()) };
    let path = format!("{section}.{key}");
    let parsed = T::from_text(&text).map_err(|allowed| ConfigError::Value {
        origin: Origin::Variable(name.clone()),
        key: path.clone(),
        value: format!("'{text}'"),
        allowed,
    })?;
    *value = Some(parsed);
    overridden.insert(path, name);
    Ok(())
}

/// Declares one section: a struct whose fields are all optional, and its overrides.
macro_rules! section {
    ($(#[$doc:meta])* $type:ident $section:literal { $( $(#[$field_doc:meta])* $field:ident : $kind:ty ),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
        #[serde(deny_unknown_fields)]
        pub struct $type {
            $( $(#[$field_doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$kind>, )*
        }

        impl $type {
            /// Name of the section in the file.
            pub const SECTION: &'static str = $section;
            /// Keys of the section.
            pub const KEYS: &'static [&'static str] = &[$(stringify!($field)),*];

            /// Replaces what `variables` say, notes whose values these are, and refuses variables of this section
            /// that name no key.
            pub(crate) fn take_overrides(
                &mut self,
                variables: &mut $crate::section::Variables,
                overridden: &mut std::collections::BTreeMap<String, String>,
            ) -> Result<(), $crate::error::ConfigError> {
                $( $crate::section::take_override(
                    &mut self.$field, Self::SECTION, stringify!($field), variables, overridden,
                )?; )*
                let prefix = $crate::section::variable_name(Self::SECTION, "");
                match variables.keys().find(|name| name.starts_with(&prefix)) {
                    Some(name) => Err($crate::error::ConfigError::UnknownVariable {
                        name: name.clone(),
                        section: Self::SECTION,
                        known: Self::KEYS.join(", "),
                    }),
                    None => Ok(()),
                }
            }
        }
    };
}
pub(crate) use section;
