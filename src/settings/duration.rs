//! Go's durations (`90s`, `1h30m`, `1.5h`, `300ms`, `5µs`, `0`): reads and writes them. No clock here.
//!
//! The grammar is that of `time.ParseDuration`: <https://pkg.go.dev/time#ParseDuration>. Differences: a negative
//! duration is an error, and fractions of a nanosecond are cut off exactly instead of going through a float.

use std::fmt::Write as _;
use std::time::Duration;

/// Nanoseconds of each unit, longest name first among those that begin alike.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000), // U+00B5, the micro sign
    ("μs", 1_000), // U+03BC, the Greek letter
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Go holds a duration in a signed 64-bit number of nanoseconds, about 292 years.
const MOST_NANOSECONDS: u128 = i64::MAX as u128;

/// Digits of a fraction that can make a difference: an hour has less than 10^13 nanoseconds.
const FRACTION_DIGITS: usize = 13;

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationProblem {
    /// Nothing, or a number or unit without the other half: `h`, `.s`.
    #[error("a number and a unit are needed")]
    NotADuration,
    /// `90`
    #[error("`{0}` has no unit")]
    NoUnit(String),
    /// `1d`
    #[error("`{0}` is not a unit")]
    UnknownUnit(String),
    /// `-5s`
    #[error("it can't be negative")]
    Negative,
    /// More than about 292 years.
    #[error("it is too long")]
    TooLong,
}

/// Reads a duration.
pub fn parse(text: &str) -> Result<Duration, DurationProblem> {
    let unsigned = match text.strip_prefix('-') {
        Some(_) => return Err(DurationProblem::Negative),
        None => text.strip_prefix('+').unwrap_or(text),
    };
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    if unsigned.is_empty() {
        return Err(DurationProblem::NotADuration);
    }
    let mut rest = unsigned;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (nanoseconds, after) = part(rest)?;
        rest = after;
        total = total.saturating_add(nanoseconds);
        if total > MOST_NANOSECONDS {
            return Err(DurationProblem::TooLong);
        }
    }
    u64::try_from(total).map(Duration::from_nanos).map_err(|_| DurationProblem::TooLong)
}

/// Reads one number with its unit; returns nanoseconds and the rest of the text.
fn part(text: &str) -> Result<(u128, &str), DurationProblem> {
    let (whole, after) = digits(text);
    let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(DurationProblem::NotADuration);
    }
    let end = after.find(|letter: char| letter == '.' || letter.is_ascii_digit()).unwrap_or(after.len());
    let (unit, after) = after.split_at(end);
    if unit.is_empty() {
        return Err(DurationProblem::NoUnit(text[..text.len() - after.len()].to_owned()));
    }
    let Some((_, size)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(DurationProblem::UnknownUnit(unit.to_owned()));
    };
    let whole = number(whole).and_then(|whole| whole.checked_mul(*size)).ok_or(DurationProblem::TooLong)?;
    let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS)];
    let scale = fraction.bytes().fold(1_u128, |scale, _| scale * 10);
    let fraction = number(fraction).unwrap_or(0) * size / scale;
    Ok((whole.saturating_add(fraction), after))
}

/// Splits off the decimal digits in front.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len()))
}

/// The number that these digits are, 0 for none; `None` if it is too large.
fn number(digits: &str) -> Option<u128> {
    if digits.is_empty() { Some(0) } else { digits.parse().ok() }
}

/// Writes a duration so that [`parse`] reads it: `1h30m`, `1.5s` as `1s500ms`, `0s`.
#[must_use]
pub fn format(duration: Duration) -> String {
    let mut rest = duration.as_nanos();
    let mut text = String::new();
    for (unit, size) in [UNITS[7], UNITS[6], UNITS[5], UNITS[4], UNITS[2], UNITS[0]] {
        if rest >= size {
            // Writing to a string does not fail.
            let _ = write!(text, "{}{unit}", rest / size);
            rest %= size;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("+0", 0),
            ("0s", 0),
            ("90s", 90_000_000_000),
            ("+5s", 5_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("30m1h", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("300ms", 300_000_000),
            ("5us", 5_000),
            ("5µs", 5_000),
            ("5μs", 5_000),
            ("7ns", 7),
            ("1.9ns", 1),
            ("0.0000000000000000000000000000000000001h", 0),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("007m", 420_000_000_000),
            ("1h1m1s1ms1us1ns", 3_661_001_001_001),
            ("9223372036854775807ns", i64::MAX as u64),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn what_go_does_not_read_is_refused_with_the_reason() {
        use DurationProblem::{Negative, NoUnit, NotADuration, TooLong, UnknownUnit};
        for (text, problem) in [
            ("", NotADuration),
            ("+", NotADuration),
            (".", NotADuration),
            (".s", NotADuration),
            ("s", NotADuration),
            ("soon", NotADuration),
            (" 5s", NotADuration),
            ("+-5s", NotADuration),
            ("90", NoUnit("90".into())),
            ("1.5", NoUnit("1.5".into())),
            ("1h30", NoUnit("30".into())),
            ("1..5h", NoUnit("1.".into())),
            ("1d", UnknownUnit("d".into())),
            ("1M", UnknownUnit("M".into())),
            ("5 s", UnknownUnit(" s".into())),
            ("5s ", UnknownUnit("s ".into())),
            ("1e3s", UnknownUnit("e".into())),
            ("5µ", UnknownUnit("µ".into())),
            ("-5s", Negative),
            ("-0", Negative),
            ("9223372036854775808ns", TooLong),
            ("300000000h", TooLong),
            ("2562048h", TooLong),
            ("99999999999999999999999999999999999999999999999999s", TooLong),
            ("2562047h2562047h", TooLong),
        ] {
            assert_eq!(parse(text), Err(problem), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_written_duration_reads_back(nanoseconds in 0..=i64::MAX.cast_unsigned()) {
            let duration = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "(?s).{0,40}|[-+]?([0-9]{0,30}\\.?[0-9]{0,30}(ns|us|µs|μs|ms|s|m|h|d)?){0,4}") {
            let _ = parse(&text);
        }
    }
}
