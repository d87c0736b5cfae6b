//! Asks Hetzner for what a pool's launch settings name: server types and places (`super::offers` chooses), the image,
//! SSH keys, networks, firewalls, the placement group. Changes nothing; can be asked again at any time.

use jiff::Timestamp;

use super::client::Client;
use super::failure::{Code, Failure};
use super::launch::Resolved;
use super::offers::{Architecture, choose, day, problem};
use super::wire::{Image, NameOnly, Named, OneImage, ServerType, time};
use crate::provider::{PrepareError, Prepared, ProviderError};
use crate::settings::{HetznerSettings, Problem};

/// What was found so far, and what was not.
#[derive(Default)]
struct Report {
    problems: Vec<Problem>,
    warnings: Vec<String>,
    findings: Vec<String>,
}

/// Looks everything up, and reports all problems together.
pub(super) async fn prepare(client: &Client, settings: &HetznerSettings) -> Result<(Prepared, Resolved), PrepareError> {
    let types = whole::<ServerType>(client, "/server_types", "server_types").await?;
    let locations = whole::<NameOnly>(client, "/locations", "locations").await?;
    let mut report = Report::default();
    let choice = match choose(settings, &types, &locations, client.now()) {
        Ok(mut choice) => {
            report.warnings.append(&mut choice.warnings);
            report.findings.append(&mut choice.findings);
            Some(choice)
        }
        Err(mut problems) => {
            report.problems.append(&mut problems);
            None
        }
    };

    let architecture = choice.as_ref().map(|choice| choice.architecture);
    let image = image(client, settings, architecture, &mut report).await?;
    let mut look_up = LookUp { client, settings, report: &mut report };
    let ssh_keys = look_up.all("/ssh_keys", "ssh_keys", "SSH key", "SSH_KEYS", &settings.ssh_keys).await?;
    let networks = look_up.all("/networks", "networks", "network", "NETWORKS", &settings.networks).await?;
    let firewalls = look_up.all("/firewalls", "firewalls", "firewall", "FIREWALLS", &settings.firewalls).await?;
    let group = settings.placement_group.as_slice();
    let group =
        look_up.all("/placement_groups", "placement_groups", "placement group", "PLACEMENT_GROUP", group).await?;

    if settings.ssh_keys.is_empty() {
        report.warnings.push(format!(
            "{}SSH_KEYS is not set: Hetzner makes a root password for each server and mails it",
            settings.prefix
        ));
    }
    let (Some(choice), Some(image), true) = (choice, image, report.problems.is_empty()) else {
        return Err(PrepareError::Settings(report.problems));
    };
    let prepared = Prepared {
        platform: choice.architecture.platform().to_owned(),
        offers: choice.offers,
        warnings: report.warnings,
        findings: report.findings,
    };
    let resolved = Resolved {
        image,
        ssh_keys: ssh_keys.into_iter().map(|key| key.name).collect(),
        networks: ids(&networks),
        firewalls: ids(&firewalls),
        placement_group: ids(&group).first().copied(),
    };
    Ok((prepared, resolved))
}

/// A list that is never empty at Hetzner: an empty one is no answer.
async fn whole<T: serde::de::DeserializeOwned>(
    client: &Client,
    path: &str,
    key: &str,
) -> Result<Vec<T>, ProviderError> {
    let items = client.pages::<T>(path, key, &[]).await?.items;
    if items.is_empty() {
        return Err(ProviderError::Unavailable(format!("GET {path}: Hetzner lists none at all")));
    }
    Ok(items)
}

/// The id of the image. `None`: `report` has the problem. Without an architecture (the server types have a problem) it
/// is only asked whether there is such an image.
async fn image(
    client: &Client,
    settings: &HetznerSettings,
    architecture: Option<Architecture>,
    report: &mut Report,
) -> Result<Option<u64>, ProviderError> {
    let wanted = settings.image.as_str();
    let of_architecture = architecture.map(|architecture| ("architecture", architecture.word()));
    let mut refuse = |message: String| report.problems.push(problem(settings, "IMAGE", wanted, message));
    let candidates = if let Ok(id) = wanted.parse::<u64>() {
        match client.get::<OneImage>(&format!("/images/{id}"), &[]).await {
            Ok(answer) => vec![answer.image],
            Err(Failure::Refused(refusal)) if refusal.meaning() == Code::NotFound => Vec::new(),
            Err(failure) => return Err(failure.into()),
        }
    } else {
        let mut query = vec![("name", wanted), ("include_deprecated", "true")];
        query.extend(of_architecture);
        let mut named = client.pages::<Image>("/images", "images", &query).await?.items;
        named.retain(|image| image.name.as_deref() == Some(wanted));
        named
    };
    if candidates.is_empty() {
        let mut query = vec![("type", "system"), ("type", "app")];
        query.extend(of_architecture);
        let existing = client.pages::<Image>("/images", "images", &query).await?.items;
        let mut names: Vec<String> = existing.into_iter().filter_map(|image| image.name).collect();
        names.sort();
        names.dedup();
        let of = architecture.map(|architecture| format!(" for {}", architecture.word())).unwrap_or_default();
        refuse(format!("there is no such image{of}; there are {}", names.join(", ")));
        return Ok(None);
    }

    let now = client.now();
    let unfit: Vec<Option<String>> = candidates.iter().map(|image| why_unfit(image, architecture, now)).collect();
    let fit = candidates.iter().zip(&unfit).filter(|(_, why)| why.is_none()).map(|(image, _)| image);
    let Some(image) = fit.max_by_key(|image| image.id) else {
        let why: Vec<String> = unfit.into_iter().flatten().collect();
        refuse(why.join("; "));
        return Ok(None);
    };
    if let Some(end) = time(image.deprecated.as_deref()) {
        report.warnings.push(format!("image {wanted} is deprecated from {}", day(end)));
    }
    report.findings.push(format!("image {wanted}: {}", image.id));
    Ok(Some(image.id))
}

/// Why an image can't be used; what an answer does not tell speaks for it.
fn why_unfit(image: &Image, architecture: Option<Architecture>, now: Timestamp) -> Option<String> {
    let id = image.id;
    if let (Some(word), Some(wanted)) = (image.architecture.as_deref(), architecture.map(Architecture::word))
        && word != wanted
    {
        return Some(format!("image {id} is for {word}, the server types are {wanted}"));
    }
    if let Some(status) = image.status.as_deref().filter(|status| *status != "available") {
        return Some(format!("image {id} is {status}"));
    }
    let since = time(image.deprecated.as_deref()).filter(|since| *since <= now)?;
    Some(format!("image {id} is deprecated since {}", day(since)))
}

/// Something of the project that a setting named.
struct Found {
    id: u64,
    name: String,
}

fn ids(found: &[Found]) -> Vec<i64> {
    found.iter().filter_map(|one| i64::try_from(one.id).ok()).collect()
}

/// Finds things of the project by name or id.
struct LookUp<'a> {
    client: &'a Client,
    settings: &'a HetznerSettings,
    report: &'a mut Report,
}

impl LookUp<'_> {
    /// Each of `wanted`, in order; what does not exist becomes a problem that says what does. Asks nothing for nothing.
    async fn all(
        &mut self,
        path: &str,
        key: &str,
        what: &str,
        variable: &str,
        wanted: &[String],
    ) -> Result<Vec<Found>, ProviderError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let existing = self.client.pages::<Named>(path, key, &[]).await?.items;
        let mut found = Vec::new();
        for wanted in wanted {
            let by_name = existing.iter().find(|one| one.name.as_ref() == Some(wanted));
            let id = wanted.parse::<u64>().ok();
            let Some(one) = by_name.or_else(|| existing.iter().find(|one| Some(one.id) == id)) else {
                let names: Vec<&str> = existing.iter().filter_map(|one| one.name.as_deref()).collect();
                let exist = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                let message = format!("there is no such {what}; there are {exist}");
                self.report.problems.push(problem(self.settings, variable, wanted, message));
                continue;
            };
            let name = one.name.clone().unwrap_or_else(|| one.id.to_string());
            self.report.findings.push(format!("{what} {name}: {}", one.id));
            found.push(Found { id: one.id, name });
        }
        Ok(found)
    }
}
