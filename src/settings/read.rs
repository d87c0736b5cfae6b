//! Text into values: numbers, durations, switches, lists, URLs. Each message says what is accepted.
//!
//! A reader that returns `None` for a value that is required or has a preset has added a problem.

use std::ops::RangeInclusive;
use std::time::Duration;

use url::Url;

use super::duration;
use super::environment::Layer;
use super::problems::{Problems, shown};
use super::registry::{Preset, Variable};
use crate::model::ids::PoolName;

/// What a duration may be.
pub struct Bounds {
    /// The shortest.
    pub least: Duration,
    /// The longest.
    pub most: Duration,
    /// What zero means, if it is accepted besides.
    pub zero: Option<&'static str>,
    /// Why it is not more or less, as half a sentence.
    pub why: &'static str,
}

/// Reads the values of one layer.
pub struct Reader<'a> {
    /// Knows under which names the values were set.
    pub layer: &'a Layer,
    /// The pool whose layer it is. `None`: the installation's.
    pub pool: Option<&'a PoolName>,
    /// Where problems go.
    pub problems: &'a mut Problems,
}

impl Reader<'_> {
    /// The name under which a variable was set.
    pub fn name(&self, variable: &Variable) -> String {
        self.layer.set_as(variable.name).to_owned()
    }

    /// Adds a problem with the value of a variable.
    pub fn refuse(&mut self, variable: &Variable, value: &str, message: impl Into<String>) {
        let name = self.name(variable);
        let had = if self.layer.has(variable.name) { shown(&name, variable.kind, value) } else { None };
        self.problems.add(name, had, message);
    }

    /// The text that holds: what was set, without spaces around it, or the preset.
    pub fn text(&mut self, variable: &'static Variable, raw: Option<String>) -> Option<String> {
        match (raw, variable.preset) {
            (Some(raw), _) => {
                let text = raw.trim().to_owned();
                let message = if text.is_empty() {
                    Some("has nothing but spaces: set a value, or leave it empty".to_owned())
                } else {
                    control_character(&text)
                };
                match message {
                    Some(message) => {
                        self.refuse(variable, &raw, message);
                        None
                    }
                    None => Some(text),
                }
            }
            (None, Preset::Value(preset)) => Some(preset.to_owned()),
            (None, Preset::Required) => {
                self.problems.missing(variable, self.pool);
                None
            }
            (None, Preset::Nothing | Preset::Words(_)) => None,
        }
    }

    /// A whole number within bounds.
    pub fn whole(
        &mut self,
        variable: &'static Variable,
        raw: Option<String>,
        bounds: RangeInclusive<u32>,
    ) -> Option<u32> {
        let text = self.text(variable, raw)?;
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        if number.is_none() {
            let message = format!("must be a whole number from {} to {}", bounds.start(), bounds.end());
            self.refuse(variable, &text, message);
        }
        number
    }

    /// A duration within bounds.
    pub fn duration(&mut self, variable: &'static Variable, raw: Option<String>, bounds: &Bounds) -> Option<Duration> {
        let Bounds { least, most, zero, why } = *bounds;
        let text = self.text(variable, raw)?;
        let complaint = match duration::parse(&text) {
            Ok(read) if (least..=most).contains(&read) || (zero.is_some() && read.is_zero()) => return Some(read),
            Ok(_) => why.to_owned(),
            Err(problem) => problem.to_string(),
        };
        let zero = zero.map(|meaning| format!("`0s` ({meaning}) or ")).unwrap_or_default();
        let (least, most) = (duration::format(least), duration::format(most));
        let message = format!(
            "must be {zero}a duration from `{least}` to `{most}`, in hours, minutes and seconds such as `1h30m` or \
             `90s`; {complaint}"
        );
        self.refuse(variable, &text, message);
        None
    }

    /// On or off.
    pub fn switch(&mut self, variable: &'static Variable, raw: Option<String>) -> Option<bool> {
        let text = self.text(variable, raw)?;
        match text.to_lowercase().as_str() {
            "true" | "1" | "yes" | "on" | "t" | "y" => Some(true),
            "false" | "0" | "no" | "off" | "f" | "n" => Some(false),
            _ => {
                self.refuse(variable, &text, "must be `true` or `false` (or `1`, `0`, `yes`, `no`, `on`, `off`)");
                None
            }
        }
    }

    /// The entries of a list, without empty ones and repetitions; empty if it is not set.
    pub fn list(&mut self, variable: &'static Variable, raw: Option<String>) -> Option<Vec<String>> {
        let wanted = raw.is_some();
        let Some(text) = self.text(variable, raw) else { return (!wanted).then(Vec::new) };
        let mut entries: Vec<String> = Vec::new();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            if !entries.iter().any(|before| before == entry) {
                entries.push(entry.to_owned());
            }
        }
        if entries.is_empty() {
            self.refuse(variable, &text, "has no entry: it must be a list separated by commas");
            return None;
        }
        Some(entries)
    }

    /// A base URL.
    pub fn url(&mut self, variable: &'static Variable, raw: Option<String>) -> Option<Url> {
        let text = self.text(variable, raw)?;
        let example = match variable.preset {
            Preset::Value(preset) => preset,
            Preset::Required | Preset::Nothing | Preset::Words(_) => "https://ci.example.org",
        };
        match base_url(&text, example) {
            Ok(url) => Some(url),
            Err(message) => {
                self.refuse(variable, &text, message);
                None
            }
        }
    }
}

/// What to say if there is a line break or another control character in a value; a tab is none.
pub fn control_character(text: &str) -> Option<String> {
    let at = text.chars().position(|letter| letter.is_control() && letter != '\t')?;
    let what = match text.chars().nth(at) {
        Some('\n' | '\r') => "a line break",
        _ => "a control character",
    };
    Some(format!("has {what} as its character {}: it must be one line of text", at + 1))
}

fn base_url(text: &str, example: &str) -> Result<Url, String> {
    let accepted = format!("must be a URL that begins with `https://` or `http://`, such as `{example}`");
    let lower = text.to_lowercase();
    if !lower.starts_with("https://") && !lower.starts_with("http://") {
        return Err(accepted);
    }
    let url = Url::parse(text).map_err(|cause| format!("{accepted}; {cause}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must be a URL without user name and password: the token is a setting of its own".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("must be a URL without `?` and `#`".to_owned());
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(accepted);
    }
    Ok(url)
}

/// The URL with a slash at the end of its path, so that joining keeps all of the path.
#[must_use]
pub fn with_slash(mut url: Url) -> Url {
    let path = format!("{}/", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}

/// The URL without a slash at the end of its path. One without a path keeps the slash that every URL has.
#[must_use]
pub fn without_slash(mut url: Url) -> Url {
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    url
}
