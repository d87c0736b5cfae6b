//! Which agent image belongs to a server.

/// The repository of the agent's images.
const REPOSITORY: &str = "woodpeckerci/woodpecker-agent";

/// A server whose version names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no agent image for a server of version {0:?}: set PICUS_AGENT_IMAGE")]
pub struct NoImage(String);

/// The agent image of a server's version, as `GET /version` tells it: `3.17.0` has `v3.17.0`, builds of the main branch
/// (`next-0123456789`) have `next`.
///
/// # Errors
///
/// Own builds (`dev`): an instance with a made-up image could not pull it.
pub fn of_server(version: &str) -> Result<String, NoImage> {
    let number = version.strip_prefix('v').unwrap_or(version);
    if version.starts_with("next") {
        return Ok(format!("{REPOSITORY}:next"));
    }
    let (core, suffix) = number.split_once('-').map_or((number, ""), |(core, suffix)| (core, suffix));
    let parts: Vec<&str> = core.split('.').collect();
    let is_release = parts.len() == 3
        && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
        && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
    if is_release { Ok(format!("{REPOSITORY}:v{number}")) } else { Err(NoImage(version.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_its_own_image_and_an_own_build_has_none() {
        for (version, image) in [
            ("3.17.0", Some("woodpeckerci/woodpecker-agent:v3.17.0")),
            ("v3.17.0", Some("woodpeckerci/woodpecker-agent:v3.17.0")),
            ("3.18.0-rc.1", Some("woodpeckerci/woodpecker-agent:v3.18.0-rc.1")),
            ("next-0123456789", Some("woodpeckerci/woodpecker-agent:next")),
            ("dev", None),
            ("", None),
            ("3.17", None),
            ("3.17.0 && rm", None),
        ] {
            assert_eq!(of_server(version).ok().as_deref(), image, "{version}");
        }
    }
}
