//! Which of a pool's server types can be ordered where: the offers, in the order of the settings. Pure; what was asked
//! of Hetzner is handed in by `super::prepare`.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::wire::{Deprecation, NameOnly, ServerType, TypeLocation};
use crate::model::instance::OfferKey;
use crate::model::pool::Offer;
use crate::settings::{HetznerSettings, Problem, ServerTypeChoice};

/// What the server types of a pool come to.
#[derive(Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) architecture: Architecture,
    /// Never empty.
    pub(super) offers: Vec<Offer>,
    pub(super) warnings: Vec<String>,
    pub(super) findings: Vec<String>,
}

/// Of a server type or an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Architecture {
    X86,
    Arm,
}

impl Architecture {
    /// Hetzner's word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::X86 => "x86",
            Self::Arm => "arm",
        }
    }

    /// What Woodpecker's agents call it.
    pub(super) fn platform(self) -> &'static str {
        match self {
            Self::X86 => "linux/amd64",
            Self::Arm => "linux/arm64",
        }
    }

    fn of(word: Option<&str>) -> Option<Self> {
        match word {
            Some("x86") => Some(Self::X86),
            Some("arm") => Some(Self::Arm),
            _ => None,
        }
    }
}

/// How a type stands at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Good,
    /// Can still be ordered; its end is announced.
    Ending,
    /// Not in stock today.
    OutOfStock,
    /// Can't be ordered there.
    NotOffered,
}

/// Chooses. A type's own place replaces the pool's places.
///
/// A place where a type's end is announced is left out while the type has a better one. One where it is not in stock comes
/// after everything else: stock changes, and a launch tells.
///
/// # Errors
///
/// Everything that no waiting repairs.
pub(super) fn choose(
    settings: &HetznerSettings,
    types: &[ServerType],
    locations: &[NameOnly],
    now: Timestamp,
) -> Result<Choice, Vec<Problem>> {
    let mut problems = unknown_locations(settings, locations);
    let mut chosen: Vec<(&ServerTypeChoice, &ServerType, Architecture)> = Vec::new();
    let (mut warnings, mut findings) = (Vec::new(), Vec::new());
    for choice in &settings.server_types {
        match look_up(settings, choice, types, now) {
            Ok((found, architecture)) => {
                warnings.extend(ending(&choice.name, found, now));
                chosen.push((choice, found, architecture));
            }
            Err(problem) => problems.push(problem),
        }
    }
    let architectures: BTreeSet<Architecture> = chosen.iter().map(|(_, _, architecture)| *architecture).collect();
    if architectures.len() > 1 {
        let list: Vec<String> = chosen
            .iter()
            .map(|(choice, _, architecture)| format!("{} is {}", choice.name, architecture.word()))
            .collect();
        let message = format!("must be of one architecture ({}): make two pools with PICUS_POOLS", list.join(", "));
        problems.push(problem(settings, "SERVER_TYPE", &names(settings), message));
    }
    let (Some(architecture), true) = (architectures.first(), problems.is_empty()) else {
        return Err(problems);
    };

    let mut offers: Vec<Offer> = Vec::new();
    let mut out_of_stock = Vec::new();
    for (choice, found, _) in &chosen {
        let places = places(settings, choice);
        let standings: Vec<(&str, Standing)> =
            places.iter().map(|place| (*place, standing(found, place, now))).collect();
        let good = standings.iter().any(|(_, standing)| *standing == Standing::Good);
        let mut used = Vec::new();
        for (place, standing) in standings {
            let name = &choice.name;
            match standing {
                Standing::Good => used.push(place),
                Standing::Ending if good => warnings.push(format!("{name} is deprecated in {place}: left out there")),
                Standing::Ending => {
                    warnings.push(format!("{name} is deprecated in {place}: choose another before it ends"));
                    used.push(place);
                }
                Standing::OutOfStock => {
                    warnings.push(format!("{name} is not in stock in {place}: tried last there"));
                    out_of_stock.push(offer(found, name, place));
                }
                Standing::NotOffered => warnings.push(format!("{name} is not offered in {place}: left out there")),
            }
        }
        findings.push(format!("server type {}: {}, {}", choice.name, architecture.word(), describe(found, &used)));
        offers.extend(used.iter().map(|place| offer(found, &choice.name, place)));
    }
    offers.extend(out_of_stock);
    let mut seen = BTreeSet::new();
    offers.retain(|offer| seen.insert(offer.key.clone()));
    if offers.is_empty() {
        let message = format!("is offered in none of the places: {}", warnings.join("; "));
        return Err(vec![problem(settings, "SERVER_TYPE", &names(settings), message)]);
    }
    Ok(Choice { architecture: *architecture, offers, warnings, findings })
}

/// A problem with the variable `name` of this pool.
pub(super) fn problem(settings: &HetznerSettings, name: &str, had: &str, message: String) -> Problem {
    Problem { variable: format!("{}{name}", settings.prefix), had: Some(had.to_owned()), message }
}

fn names(settings: &HetznerSettings) -> String {
    settings.server_types.iter().map(written).collect::<Vec<_>>().join(",")
}

fn written(choice: &ServerTypeChoice) -> String {
    let ServerTypeChoice { name, location } = choice;
    location.as_ref().map_or_else(|| name.clone(), |location| format!("{name}:{location}"))
}

fn places<'a>(settings: &'a HetznerSettings, choice: &'a ServerTypeChoice) -> Vec<&'a str> {
    choice.location.as_deref().map_or_else(|| settings.locations.iter().map(String::as_str).collect(), |own| vec![own])
}

/// Places that do not exist, of those that are used.
fn unknown_locations(settings: &HetznerSettings, locations: &[NameOnly]) -> Vec<Problem> {
    let known: Vec<&str> = locations.iter().filter_map(|location| location.name.as_deref()).collect();
    let message = || format!("there is no such place; there are {}", known.join(", "));
    let shared = settings.server_types.iter().any(|choice| choice.location.is_none());
    let pools = settings.locations.iter().filter(|place| shared && !known.contains(&place.as_str()));
    let own = settings
        .server_types
        .iter()
        .filter(|choice| choice.location.as_deref().is_some_and(|place| !known.contains(&place)));
    pools
        .map(|place| problem(settings, "LOCATION", place, message()))
        .chain(own.map(|choice| problem(settings, "SERVER_TYPE", &written(choice), message())))
        .collect()
}

fn look_up<'a>(
    settings: &HetznerSettings,
    choice: &ServerTypeChoice,
    types: &'a [ServerType],
    now: Timestamp,
) -> Result<(&'a ServerType, Architecture), Problem> {
    let problem = |message: String| problem(settings, "SERVER_TYPE", &written(choice), message);
    let exist = || {
        let current = types.iter().filter(|one| one.deprecation.is_none());
        current.filter_map(|one| one.name.as_deref()).collect::<Vec<_>>().join(", ")
    };
    let Some(found) = types.iter().find(|one| one.name.as_deref() == Some(&choice.name)) else {
        return Err(problem(format!("there is no such server type; there are {}", exist())));
    };
    if let Some(end) = found.deprecation.as_ref().and_then(Deprecation::end).filter(|end| *end <= now) {
        return Err(problem(format!("can't be ordered since {}; there are {}", day(end), exist())));
    }
    let word = found.architecture.as_deref();
    Architecture::of(word)
        .map(|architecture| (found, architecture))
        .ok_or_else(|| problem(format!("has the architecture {:?}; Picus knows x86 and arm", word.unwrap_or("none"))))
}

/// The warning for a type whose end is announced.
fn ending(name: &str, found: &ServerType, now: Timestamp) -> Option<String> {
    let deprecation = found.deprecation.as_ref()?;
    Some(match deprecation.end() {
        Some(end) if end > now => format!("server type {name} is deprecated; it can be ordered until {}", day(end)),
        Some(_) | None => format!("server type {name} is deprecated"),
    })
}

fn standing(found: &ServerType, place: &str, now: Timestamp) -> Standing {
    // Older answers do not tell; the place itself exists.
    let Some(locations) = &found.locations else { return Standing::Good };
    let Some(at) = locations.iter().find(|at| at.name.as_deref() == Some(place)) else {
        return Standing::NotOffered;
    };
    let TypeLocation { name: _, available, deprecation } = at;
    match deprecation {
        Some(deprecation) if deprecation.end().is_some_and(|end| end <= now) => Standing::NotOffered,
        _ if *available == Some(false) => Standing::OutOfStock,
        Some(_) => Standing::Ending,
        None => Standing::Good,
    }
}

fn offer(found: &ServerType, name: &str, place: &str) -> Offer {
    let key = OfferKey { server_type: name.to_owned(), location: place.to_owned() };
    Offer { key, hourly_price: hourly_price(found, place) }
}

/// Gross, in the project's currency.
fn hourly_price(found: &ServerType, place: &str) -> Option<f64> {
    let price = found.prices.as_ref()?.iter().find(|price| price.location.as_deref() == Some(place))?;
    let gross: f64 = price.price_hourly.as_ref()?.gross.as_ref()?.parse().ok()?;
    gross.is_finite().then_some(gross)
}

fn describe(found: &ServerType, places: &[&str]) -> String {
    let place = |place: &&str| match hourly_price(found, place) {
        Some(price) => format!("{place} at {price:.4} an hour"),
        None => (*place).to_owned(),
    };
    if places.is_empty() { "in no place".to_owned() } else { places.iter().map(place).collect::<Vec<_>>().join(", ") }
}

/// The day of a time, for people.
pub(super) fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}
