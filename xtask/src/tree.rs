//! The text files of the repository, in a fixed order.

use std::fs;
use std::path::Path;

/// One text file: path from the root with `/` between the parts, and its contents.
pub(crate) struct TextFile {
    /// Path from the root of the repository.
    pub(crate) path: String,
    /// The whole text.
    pub(crate) text: String,
}

/// Folders that hold nothing written by hand.
const SKIPPED: [&str; 2] = ["target", ".git"];

/// Kinds of file that are looked at, by the end of their names.
const ENDINGS: [&str; 8] = [".rs", ".md", ".toml", ".sh", ".c", ".h", "Makefile", ".ci/run"];

/// Every text file below `root`, sorted by path.
pub(crate) fn text_files(root: &Path) -> Result<Vec<TextFile>, String> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(folder: &Path, prefix: &str, files: &mut Vec<TextFile>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries {
        let entry = entry.map_err(|e| format!("{}: {e}", folder.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().map_err(|e| format!("{}: {e}", entry.path().display()))?;
        let path = format!("{prefix}{name}");
        if kind.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                walk(&entry.path(), &format!("{path}/"), files)?;
            }
        } else if kind.is_file() && ENDINGS.iter().any(|ending| path.ends_with(ending)) {
            let text = fs::read_to_string(entry.path()).map_err(|e| format!("{path}: {e}"))?;
            files.push(TextFile { path, text });
        }
    }
    Ok(())
}
