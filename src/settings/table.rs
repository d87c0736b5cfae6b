//! The README's table of settings, written from the registry.

use std::fmt::Write as _;

use super::registry::{ALL, Availability, Kind, Preset, Scope};

/// The table in Markdown, with what holds for several rows said below it.
#[must_use]
pub fn markdown() -> String {
    let here = || ALL.iter().filter(|variable| variable.availability == Availability::Here);
    let mut table = String::from("| variable | meaning | default |\n|---|---|---|\n");
    for variable in here() {
        let sort = match variable.kind {
            Kind::Secret => " (secret)",
            Kind::Text | Kind::Whole | Kind::Duration | Kind::Switch | Kind::List | Kind::Url | Kind::Word => "",
        };
        let preset = match variable.preset {
            Preset::Required => "required".to_owned(),
            Preset::Nothing => "–".to_owned(),
            Preset::Value(value) => format!("`{value}`"),
            Preset::Words(words) => words.to_owned(),
        };
        // Writing to a string does not fail.
        let _ = writeln!(table, "| `{}` | {}{sort} | {preset} |", variable.name, variable.meaning);
    }
    let whole: Vec<String> = here()
        .filter(|variable| variable.scope == Scope::Installation)
        .map(|variable| format!("`{}`", variable.name))
        .collect();
    let _ = write!(
        table,
        "\nEmpty means unset. A secret can also come from a file: append `_FILE` to its name and set the path. Durations \
         are Go's: `90s`, `1h30m`. With `PICUS_POOLS` every setting can be overridden for one pool, except {}.\n",
        whole.join(", ")
    );
    table
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const BEGIN: &str = "<!-- settings: begin -->";
    const END: &str = "<!-- settings: end -->";

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a switch of the test, no setting of the program")]
    fn the_settings_table_of_the_readme_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        let readme = std::fs::read_to_string(&path).expect("README.md can be read");
        let (before, rest) = readme.split_once(BEGIN).expect("README.md has the marker before the table");
        let (table, after) = rest.split_once(END).expect("README.md has the marker after the table");
        let wanted = format!("\n{}", markdown());
        if std::env::var("UPDATE_README").is_ok_and(|value| value == "1") {
            std::fs::write(&path, format!("{before}{BEGIN}{wanted}{END}{after}")).expect("README.md can be written");
            return;
        }
        assert!(
            table == wanted,
            "the settings table in README.md is not the one of src/settings/registry.rs; refresh it with\n\n    \
             UPDATE_README=1 cargo test settings_table\n"
        );
    }

    #[test]
    fn no_cell_of_the_table_breaks_it() {
        for line in markdown().lines().filter(|line| line.starts_with('|')) {
            assert_eq!(line.matches('|').count(), 4, "{line}");
        }
    }
}
