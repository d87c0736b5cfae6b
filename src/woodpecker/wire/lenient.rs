//! Values as other versions and other hands may write them: `null` for empty, a number as text, text as a number.
//!
//! What each accepts is in its `expecting`; that text is all of an answer that an error may show.

use std::fmt;

use jiff::Timestamp;
use secrecy::SecretString;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};

use crate::model::labels::Labels;

/// A whole number; `null` is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Number(pub(super) i64);

/// The id of a record: a whole number that must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(pub(super) i64);

/// The id of a task: text or a whole number that must be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference(pub(super) String);

/// Text; `null` is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Name(pub(super) String);

/// Yes or no; `null` is no.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Flag(pub(super) bool);

/// Seconds since 1970; 0, less and `null` are "never".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Instant(pub(super) Option<Timestamp>);

/// Labels; `null` is none, and a value of `null` an empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LabelMap(pub(super) Labels);

/// A list that is there: `null` is an empty one. `None` stands for a missing field (`#[serde(default)]`).
pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Vec<T>>, D::Error> {
    Option::<Vec<T>>::deserialize(from).map(|list| Some(list.unwrap_or_default()))
}

/// A value that is there, `null` included. `None` stands for a missing field (`#[serde(default)]`).
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// A secret that is there, as text.
pub(super) fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<SecretString, D::Error> {
    const WANTED: &str = "a token";
    match scalar(from, WANTED)? {
        Scalar::Text(text) => Ok(text.into()),
        Scalar::Null | Scalar::Bool(_) | Scalar::Whole(_) | Scalar::Fraction(_) => Err(refused(WANTED)),
    }
}

/// What one JSON value held.
enum Scalar {
    Null,
    Bool(bool),
    Whole(i64),
    Fraction(f64),
    Text(String),
}

/// Reads one value; lists and objects are refused with the text of `wanted`.
struct ScalarVisitor {
    wanted: &'static str,
}

impl Visitor<'_> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wanted)
    }

    fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
        Ok(Scalar::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar, E> {
        Ok(Scalar::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar, E> {
        Ok(Scalar::Whole(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Scalar, E> {
        i64::try_from(value).map(Scalar::Whole).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Scalar, E> {
        Ok(Scalar::Fraction(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Scalar, E> {
        Ok(Scalar::Text(value))
    }
}

fn scalar<'de, D: Deserializer<'de>>(from: D, wanted: &'static str) -> Result<Scalar, D::Error> {
    from.deserialize_any(ScalarVisitor { wanted })
}

fn refused<E: Error>(wanted: &'static str) -> E {
    E::invalid_value(Unexpected::Other("something else"), &wanted)
}

/// A whole number, written as one, as text, or as `5.0`.
fn whole(value: &Scalar) -> Option<i64> {
    match value {
        Scalar::Whole(number) => Some(*number),
        Scalar::Text(text) => text.trim().parse().ok(),
        // Through text: `5` for 5.0, and nothing that a cast would round.
        Scalar::Fraction(number) => number.to_string().parse().ok(),
        Scalar::Null | Scalar::Bool(_) => None,
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const WANTED: &str = "a whole number";
        match scalar(from, WANTED)? {
            Scalar::Null => Ok(Self(0)),
            value => whole(&value).map(Self).ok_or_else(|| refused(WANTED)),
        }
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const WANTED: &str = "an id, a whole number";
        whole(&scalar(from, WANTED)?).map(Self).ok_or_else(|| refused(WANTED))
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const WANTED: &str = "an id, text or a whole number";
        match scalar(from, WANTED)? {
            Scalar::Text(text) if !text.is_empty() => Ok(Self(text)),
            Scalar::Whole(number) => Ok(Self(number.to_string())),
            Scalar::Text(_) | Scalar::Null | Scalar::Bool(_) | Scalar::Fraction(_) => Err(refused(WANTED)),
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(match scalar(from, "text")? {
            Scalar::Null => String::new(),
            Scalar::Bool(value) => value.to_string(),
            Scalar::Whole(number) => number.to_string(),
            Scalar::Fraction(number) => number.to_string(),
            Scalar::Text(text) => text,
        }))
    }
}

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const WANTED: &str = "true or false";
        match scalar(from, WANTED)? {
            Scalar::Null | Scalar::Whole(0) => Ok(Self(false)),
            Scalar::Bool(value) => Ok(Self(value)),
            Scalar::Whole(1) => Ok(Self(true)),
            Scalar::Text(text) => text.parse().map(Self).map_err(|_| refused(WANTED)),
            Scalar::Whole(_) | Scalar::Fraction(_) => Err(refused(WANTED)),
        }
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const WANTED: &str = "seconds since 1970";
        match scalar(from, WANTED)? {
            Scalar::Null => Ok(Self(None)),
            value => match whole(&value) {
                Some(..=0) => Ok(Self(None)),
                Some(seconds) => {
                    Timestamp::from_second(seconds).map(|time| Self(Some(time))).map_err(|_| refused(WANTED))
                }
                None => Err(refused(WANTED)),
            },
        }
    }
}

impl<'de> Deserialize<'de> for LabelMap {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(LabelVisitor)
    }
}

struct LabelVisitor;

impl<'de> Visitor<'de> for LabelVisitor {
    type Value = LabelMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("labels, an object of texts")
    }

    fn visit_unit<E: Error>(self) -> Result<LabelMap, E> {
        Ok(LabelMap::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LabelMap, A::Error> {
        let mut labels = Labels::default();
        while let Some((key, value)) = map.next_entry::<String, Name>()? {
            labels.set(key, value.0);
        }
        Ok(LabelMap(labels))
    }
}
