//! What a canary is: one edit of one file, and who must notice it.

use std::fs;
use std::path::Path;
use toml::{Table, Value};

/// Where the canaries are described, from the root.
pub(super) const FOLDER: &str = "lab/canaries";

/// Somebody who looks for broken rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tool {
    /// The simulator, over random worlds.
    Explore,
    /// The model checker.
    Model,
    /// An ordinary test.
    Test,
}

impl Tool {
    const ALL: [(&'static str, Tool); 3] =
        [("explore", Tool::Explore), ("model", Tool::Model), ("test", Tool::Test)];

    pub(super) fn name(self) -> &'static str {
        Tool::ALL.iter().find(|(_, tool)| *tool == self).expect("every tool has a name").0
    }
}

/// One deliberately broken build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Canary {
    /// Name of its file, without the ending.
    pub(super) name: String,
    /// What is broken, in one line.
    pub(super) about: String,
    /// The file that is edited, from the root.
    pub(super) file: String,
    /// The text that is replaced; occurs once.
    pub(super) find: String,
    /// What it is replaced by.
    pub(super) replace: String,
    /// Who must notice.
    pub(super) caught_by: Vec<Tool>,
    /// Seeds after which the simulator must have noticed.
    pub(super) seeds_max: u64,
    /// Arguments of the model checker.
    pub(super) model: Vec<String>,
    /// Arguments of `cargo test`.
    pub(super) test: Vec<String>,
}

impl Canary {
    /// The whole text of its file, broken.
    pub(super) fn edited(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.find).count() {
            1 => Ok(text.replacen(&self.find, &self.replace, 1)),
            count => Err(format!(
                "{}: the text to replace occurs {count} times in {}, not once: adapt the canary to the code",
                self.name, self.file
            )),
        }
    }
}

/// All canaries, or those with these names, by name.
pub(super) fn load(root: &Path, names: &[&str]) -> Result<Vec<Canary>, String> {
    let folder = root.join(FOLDER);
    let entries = fs::read_dir(&folder).map_err(|e| format!("{FOLDER}: {e}"))?;
    let mut canaries = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| format!("{FOLDER}: {e}"))?.path();
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let is_canary = path.extension().is_some_and(|ending| ending == "toml") && name != "Cargo";
        if is_canary && (names.is_empty() || names.contains(&name.as_str())) {
            let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            canaries.push(parse(&name, &text)?);
        }
    }
    canaries.sort_by(|a, b| (&a.file, &a.name).cmp(&(&b.file, &b.name)));
    match names.iter().find(|name| !canaries.iter().any(|canary| canary.name == **name)) {
        Some(unknown) => Err(format!("there is no canary {unknown} in {FOLDER}")),
        None => Ok(canaries),
    }
}

fn parse(name: &str, text: &str) -> Result<Canary, String> {
    let wrong = |what: &str| format!("{FOLDER}/{name}.toml: {what}");
    let table: Table = text.parse().map_err(|e| wrong(&format!("{e}")))?;
    let known = ["about", "file", "find", "replace", "caught_by", "seeds_max", "model", "test"];
    if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(wrong(&format!("{key} means nothing here")));
    }
    let string = |key: &str| {
        let value = table.get(key).and_then(Value::as_str).map(str::to_owned);
        value.ok_or_else(|| wrong(&format!("{key} is missing, or is no string")))
    };
    let strings = |key: &str| -> Result<Vec<String>, String> {
        let Some(value) = table.get(key) else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(|| wrong(&format!("{key} is no list")))?;
        let texts = list.iter().map(|item| item.as_str().map(str::to_owned));
        texts.collect::<Option<_>>().ok_or_else(|| wrong(&format!("{key} holds something that is no string")))
    };
    let tool = |name: &String| {
        let tool = Tool::ALL.iter().find(|(known, _)| known == name).map(|(_, tool)| *tool);
        tool.ok_or_else(|| wrong(&format!("nobody is called {name}: use explore, model or test")))
    };
    let caught_by = strings("caught_by")?.iter().map(tool).collect::<Result<Vec<_>, _>>()?;
    let seeds_max = table.get("seeds_max").and_then(Value::as_integer).and_then(|n| u64::try_from(n).ok());
    let canary = Canary {
        name: name.to_owned(),
        about: string("about")?,
        file: string("file")?,
        find: string("find")?,
        replace: string("replace")?,
        seeds_max: seeds_max.unwrap_or(0),
        model: strings("model")?,
        test: strings("test")?,
        caught_by,
    };
    let uses = |tool| canary.caught_by.contains(&tool);
    if canary.caught_by.is_empty() {
        return Err(wrong("nobody has to notice it"));
    }
    if uses(Tool::Explore) != (canary.seeds_max > 0) {
        return Err(wrong("seeds_max is for explore, and explore needs it"));
    }
    if uses(Tool::Test) == canary.test.is_empty() || uses(Tool::Model) == canary.model.is_empty() {
        return Err(wrong("test and model, where they are to notice, need their arguments, and only there"));
    }
    Ok(canary)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        about = "the older byte wins"
        file = "crates/x/src/lib.rs"
        find = "a < b"
        replace = "a > b"
        caught_by = ["explore"]
        seeds_max = 100
    "#;

    #[test]
    fn a_canary_is_one_edit_and_who_must_notice_it() {
        let canary = parse("older-wins", GOOD).unwrap();
        assert_eq!((canary.seeds_max, canary.caught_by.as_slice()), (100, &[Tool::Explore][..]));
        assert_eq!(canary.edited("if a < b {").unwrap(), "if a > b {");
    }

    #[test]
    fn an_edit_that_fits_nowhere_or_twice_is_refused() {
        let canary = parse("older-wins", GOOD).unwrap();
        assert!(canary.edited("if b < a {").unwrap_err().contains("0 times"));
        assert!(canary.edited("a < b && a < b").unwrap_err().contains("2 times"));
    }

    #[test]
    fn mistakes_in_a_canary_are_named() {
        for (from, to, expected) in [
            ("seeds_max = 100", "", "needs it"),
            ("explore", "luck", "nobody is called luck"),
            ("about", "abbout", "abbout means nothing"),
            ("[\"explore\"]", "[]", "nobody has to notice"),
            ("[\"explore\"]", "[\"explore\", \"test\"]", "need their arguments"),
            ("find = \"a < b\"", "find = 7", "find is missing"),
        ] {
            let error = parse("x", &GOOD.replace(from, to)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
