//! The variables that Kubernetes sets by itself in every pod, one set for each Service of the namespace.
//!
//! For a Service named `picus` they begin like our settings: `PICUS_SERVICE_HOST`, `PICUS_PORT_8080_TCP_ADDR`, ….
//! <https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables>

/// Whether Kubernetes sets this variable for a Service named `picus`.
#[must_use]
pub fn sets(name: &str) -> bool {
    service(name) == Some("")
}

/// What to say about a variable that Kubernetes sets for a Service whose name begins with `picus-`.
#[must_use]
pub fn hint(name: &str, value: &str) -> Option<String> {
    let service = service(name).filter(|service| !service.is_empty())?;
    // `…_PORT` alone could also be a mistyped setting; Kubernetes' has an address.
    if name.ends_with("_PORT") && !name.contains("_PORT_") && !name.ends_with("_SERVICE_PORT") && !value.contains("://")
    {
        return None;
    }
    Some(format!(
        "is not a setting; Kubernetes sets it for a Service named `picus-{}`: rename the Service, or set \
         `enableServiceLinks: false` in the pod's specification",
        service.to_lowercase().replace('_', "-")
    ))
}

/// What stands between `PICUS_` and the ending that Kubernetes adds to a Service's name: empty for one named `picus`.
fn service(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("PICUS")?;
    let (service, _) = [before_service_ending(rest), before_port_ending(rest)].into_iter().flatten().next()?;
    match service.strip_prefix('_') {
        Some(service) => Some(service),
        None => service.is_empty().then_some(""),
    }
}

/// `…_SERVICE_HOST`, `…_SERVICE_PORT`, `…_SERVICE_PORT_HTTP`
fn before_service_ending(rest: &str) -> Option<(&str, &str)> {
    let at = rest.find("_SERVICE_HOST").or_else(|| rest.find("_SERVICE_PORT"))?;
    let (service, ending) = rest.split_at(at);
    let port_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let right = matches!(ending, "_SERVICE_HOST" | "_SERVICE_PORT")
        || ending.strip_prefix("_SERVICE_PORT_").is_some_and(port_name);
    right.then_some((service, ending))
}

/// `…_PORT`, `…_PORT_8080_TCP`, `…_PORT_8080_TCP_ADDR`, `…_PORT`, `…_PROTO`
fn before_port_ending(rest: &str) -> Option<(&str, &str)> {
    let at = rest.find("_PORT")?;
    let (service, ending) = rest.split_at(at);
    if ending == "_PORT" {
        return Some((service, ending));
    }
    let mut parts = ending.strip_prefix("_PORT_")?.split('_');
    let number = parts.next().is_some_and(|number| number.parse::<u16>().is_ok());
    let protocol = matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"));
    let field = matches!(parts.next(), None | Some("ADDR" | "PORT" | "PROTO"));
    (number && protocol && field && parts.next().is_none()).then_some((service, ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubernetes_sets_for_a_service_named_picus_is_known() {
        for name in [
            "PICUS_SERVICE_HOST",
            "PICUS_SERVICE_PORT",
            "PICUS_SERVICE_PORT_HTTP",
            "PICUS_SERVICE_PORT_HTTP_METRICS",
            "PICUS_PORT",
            "PICUS_PORT_8080_TCP",
            "PICUS_PORT_8080_TCP_ADDR",
            "PICUS_PORT_8080_TCP_PORT",
            "PICUS_PORT_8080_TCP_PROTO",
            "PICUS_PORT_53_UDP",
            "PICUS_PORT_9_SCTP_PROTO",
        ] {
            assert!(sets(name), "{name}");
        }
        for name in [
            "PICUS_SERVICE",
            "PICUS_SERVICE_HOSTS",
            "PICUS_SERVICE_PORTS",
            "PICUS_SERVICE_PORT_",
            "PICUS_PORTS",
            "PICUS_PORT_",
            "PICUS_PORT_TCP",
            "PICUS_PORT_99999_TCP",
            "PICUS_PORT_8080_TCP_HOST",
            "PICUS_PORT_8080_TCP_ADDR_X",
            "PICUS_POOL_ARM64_SERVICE_HOST",
            "PICUS_POOL_PORT",
            "PICUSX_PORT",
            "PICUS",
        ] {
            assert!(!sets(name), "{name}");
        }
    }

    #[test]
    fn a_service_with_a_longer_name_is_explained() {
        assert!(hint("PICUS_METRICS_SERVICE_HOST", "10.0.0.1").is_some_and(|hint| hint.contains("`picus-metrics`")));
        assert!(hint("PICUS_A_B_PORT_80_TCP", "tcp://10.0.0.1:80").is_some_and(|hint| hint.contains("`picus-a-b`")));
        assert!(hint("PICUS_METRICS_PORT", "tcp://10.0.0.1:80").is_some());
        assert_eq!(hint("PICUS_METRICS_PORT", "80"), None);
        assert_eq!(hint("PICUS_METRIC", "80"), None);
    }
}
