//! The known name that is nearest to one that somebody typed.

/// Names are compared up to so many characters: no variable of ours is longer, and the time is that of the square.
const COMPARED: usize = 100;

/// The nearest of `known` and how many letters differ, without regard to case. `None` if there is none.
pub fn nearest<S: AsRef<str>>(name: &str, known: impl IntoIterator<Item = S>) -> Option<(S, usize)> {
    let name: String = name.chars().take(COMPARED).collect::<String>().to_uppercase();
    known
        .into_iter()
        .map(|candidate| {
            let distance = strsim::damerau_levenshtein(&name, &candidate.as_ref().to_uppercase());
            (candidate, distance)
        })
        .min_by_key(|(_, distance)| *distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_whatever_the_case() {
        let known = ["PICUS_ID", "PICUS_MAX_AGENTS", "PICUS_MIN_AGENTS"];
        assert_eq!(nearest("PICUS_MAX_AGENT", known), Some(("PICUS_MAX_AGENTS", 1)));
        assert_eq!(nearest("PICUS_MXA_AGENTS", known), Some(("PICUS_MAX_AGENTS", 1)));
        assert_eq!(nearest("picus_id", known), Some(("PICUS_ID", 0)));
        assert_eq!(nearest("x", [""; 0]), None);
        assert_eq!(nearest(&"Ä".repeat(10_000), known).map(|(_, distance)| distance), Some(100));
    }
}
