//! Whether what a pool's settings name exists at EC2, and what can be ordered: every problem at once, each with its
//! variable.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::{ArchitectureType, Image, InstanceTypeInfo, ResponseLaunchTemplateData};

use super::client::Client;
use super::failure::{Failure, Meaning};
use super::instances::{described, filter, state, tag};
use super::launch::Resolved;
use crate::model::instance::OfferKey;
use crate::model::pool::Offer;
use crate::provider::{PrepareError, Prepared};
use crate::settings::{AmiChoice, Ec2Settings, FixedSettings, LaunchTemplate, Problem};

/// Where an instance is launched when no subnet is named.
pub(super) const DEFAULT_PLACE: &str = "default";

/// What a pool that launches comes to.
pub(super) async fn launched(client: &Client, settings: &Ec2Settings) -> Result<(Prepared, Resolved), PrepareError> {
    let mut look = Look { client, prefix: &settings.prefix, problems: Vec::new(), findings: Vec::new() };
    look.region().await?;
    let template = match &settings.launch_template {
        Some(template) => look.template(template).await?,
        None => None,
    };
    let types = look.types(settings, template.as_ref()).await?;
    let image = look.image(settings, template.as_ref()).await?;
    look.subnets(&settings.subnets).await?;
    look.groups(&settings.security_groups).await?;
    if let Some(key) = &settings.key_name {
        look.key(key).await?;
    }
    let platforms: BTreeSet<&str> = types.iter().map(|(_, platform)| *platform).collect();
    if platforms.len() > 1 {
        let list: Vec<String> = types.iter().map(|(name, platform)| format!("{name} is {platform}")).collect();
        let message = format!("must be of one architecture ({}): make two pools with PICUS_POOLS", list.join(", "));
        look.problem("INSTANCE_TYPE", Some(settings.instance_types.join(",")), message);
    }
    if let (Some(image), Some(platform)) = (&image, platforms.first())
        && platform_of_image(image).is_some_and(|of_image| of_image != *platform)
    {
        let message =
            format!("is for {}, and the instance types are {platform}", platform_of_image(image).unwrap_or("?"));
        look.problem("AMI", image.image_id().map(ToOwned::to_owned), message);
    }
    if settings.volume_size.is_some() && image.is_none() {
        let message =
            "needs an image by its id, or by owner and name: of an alias or a template's image the disk is not known";
        look.problem("VOLUME_SIZE", settings.volume_size.map(|size| size.to_string()), message.to_owned());
    }
    let Look { problems, findings, .. } = look;
    let Some(platform) = platforms.first().filter(|_| problems.is_empty()) else {
        return Err(PrepareError::Settings(problems));
    };
    let subnets: Vec<Option<&String>> =
        if settings.subnets.is_empty() { vec![None] } else { settings.subnets.iter().map(Some).collect() };
    let offer = |name: &String, subnet: Option<&String>| Offer {
        key: OfferKey {
            server_type: name.clone(),
            location: subnet.map_or_else(|| DEFAULT_PLACE.to_owned(), Clone::clone),
        },
        hourly_price: settings.hourly_price,
    };
    let offers = types.iter().flat_map(|(name, _)| subnets.iter().map(move |subnet| offer(name, *subnet))).collect();
    let resolved = Resolved {
        image: match (&image, &settings.ami) {
            (Some(image), Some(_)) => image.image_id().map(ToOwned::to_owned),
            (_, Some(AmiChoice::Parameter(path))) => Some(format!("resolve:ssm:{path}")),
            (_, Some(AmiChoice::Id(_) | AmiChoice::Newest { .. }) | None) => None,
        },
        root_device: image.as_ref().and_then(|image| image.root_device_name()).map(ToOwned::to_owned),
        root_size: image.as_ref().and_then(root_size),
    };
    let prepared = Prepared { platform: (*platform).to_owned(), offers, warnings: Vec::new(), findings };
    Ok((prepared, resolved))
}

/// What a pool of machines that somebody else made comes to.
pub(super) async fn fixed(client: &Client, settings: &FixedSettings) -> Result<Prepared, PrepareError> {
    let mut look = Look { client, prefix: &settings.prefix, problems: Vec::new(), findings: Vec::new() };
    look.region().await?;
    let ids: Vec<&str> = settings.instances.iter().map(|one| one.id.0.as_str()).collect();
    let found = described(client, vec![filter("instance-id", ids.iter().copied())]).await?;
    let missing: Vec<&str> =
        ids.iter().copied().filter(|id| found.iter().all(|one| one.instance_id() != Some(*id))).collect();
    if !missing.is_empty() {
        let message = format!("there is no {} in this region and account", missing.join(", "));
        look.problem("INSTANCE_ID", Some(ids.join(",")), message);
    }
    let mut platform = None;
    for one in &found {
        let of_one = one.architecture().and_then(|word| platform_of(word.as_str()));
        platform = platform.or(of_one);
        let name = tag(one, "Name").map(|name| format!(" ({name})")).unwrap_or_default();
        let state = state(one).map_or_else(String::new, |state| format!("{state:?}").to_lowercase());
        let kind = one.instance_type().map_or("unknown", |kind| kind.as_str());
        look.findings.push(format!("{}{name}: {kind}, {state}", one.instance_id().unwrap_or("?")));
    }
    let Look { problems, findings, .. } = look;
    match platform {
        Some(platform) if problems.is_empty() => {
            Ok(Prepared { platform: platform.to_owned(), offers: Vec::new(), warnings: Vec::new(), findings })
        }
        None if problems.is_empty() => {
            let message = "has no machine whose architecture Picus knows (x86_64, arm64)".to_owned();
            Err(PrepareError::Settings(vec![Problem {
                variable: format!("{}INSTANCE_ID", settings.prefix),
                had: Some(ids.join(",")),
                message,
            }]))
        }
        Some(_) | None => Err(PrepareError::Settings(problems)),
    }
}

/// Looks things up and collects what is wrong.
struct Look<'a> {
    client: &'a Client,
    prefix: &'a str,
    problems: Vec<Problem>,
    findings: Vec<String>,
}

impl Look<'_> {
    fn problem(&mut self, name: &str, had: Option<String>, message: String) {
        self.problems.push(Problem { variable: format!("{}{name}", self.prefix), had, message });
    }

    /// Without a region nothing can be asked.
    async fn region(&mut self) -> Result<(), PrepareError> {
        if let Some(region) = self.client.region().await {
            self.findings.push(format!("region {region}"));
            return Ok(());
        }
        Err(PrepareError::Settings(vec![Problem {
            variable: "AWS_REGION".to_owned(),
            had: None,
            message: "must be set, such as `eu-central-1`, or the region in the profile that AWS_PROFILE names"
                .to_owned(),
        }]))
    }

    async fn template(&mut self, template: &LaunchTemplate) -> Result<Option<ResponseLaunchTemplateData>, Failure> {
        let ask = self.client.ec2().await?.describe_launch_template_versions().versions(&template.version);
        let ask = if template.name.starts_with("lt-") {
            ask.launch_template_id(&template.name)
        } else {
            ask.launch_template_name(&template.name)
        };
        let had = format!("{}:{}", template.name, template.version);
        let answer = match self.client.read("DescribeLaunchTemplateVersions", ask.send().await) {
            Ok(answer) => answer,
            Err(Failure::Refused { meaning: Meaning::NotFound | Meaning::Other, text }) => {
                self.problem("LAUNCH_TEMPLATE", Some(had), format!("can't be read: {text}"));
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
        let found = answer.launch_template_versions.unwrap_or_default().into_iter().next();
        if let Some(data) = found.and_then(|version| version.launch_template_data) {
            self.findings.push(format!("launch template {had}"));
            Ok(Some(data))
        } else {
            self.problem("LAUNCH_TEMPLATE", Some(had), "there is no such launch template or version".to_owned());
            Ok(None)
        }
    }

    /// The instance types with their platforms, in order.
    async fn types(
        &mut self,
        settings: &Ec2Settings,
        template: Option<&ResponseLaunchTemplateData>,
    ) -> Result<Vec<(String, &'static str)>, Failure> {
        let mut wanted = settings.instance_types.clone();
        if wanted.is_empty() {
            wanted.extend(template.and_then(|data| data.instance_type()).map(|kind| kind.as_str().to_owned()));
        }
        if wanted.is_empty() {
            if self.problems.is_empty() {
                self.problem("INSTANCE_TYPE", None, "must be set, because the launch template has none".to_owned());
            }
            return Ok(Vec::new());
        }
        let filters = vec![filter("instance-type", wanted.iter().map(String::as_str))];
        let ec2 = self.client.ec2().await?;
        let mut pages = ec2.describe_instance_types().set_filters(Some(filters)).into_paginator().send();
        let mut platforms: BTreeMap<String, Option<&'static str>> = BTreeMap::new();
        while let Some(page) = pages.next().await {
            for info in self.client.read("DescribeInstanceTypes", page)?.instance_types.unwrap_or_default() {
                if let Some(kind) = info.instance_type() {
                    platforms.insert(kind.as_str().to_owned(), platform_of_type(&info));
                }
            }
        }
        let mut types = Vec::new();
        let had = wanted.join(",");
        for name in wanted {
            match platforms.get(&name) {
                Some(Some(platform)) => {
                    self.findings.push(format!("instance type {name}: {platform}"));
                    types.push((name, *platform));
                }
                Some(None) => {
                    let message = format!("{name} has an architecture that Picus does not know (x86_64, arm64)");
                    self.problem("INSTANCE_TYPE", Some(had.clone()), message);
                }
                None => {
                    self.problem("INSTANCE_TYPE", Some(had.clone()), format!("there is no {name} in this region"));
                }
            }
        }
        Ok(types)
    }

    /// The image, where it can be looked up.
    async fn image(
        &mut self,
        settings: &Ec2Settings,
        template: Option<&ResponseLaunchTemplateData>,
    ) -> Result<Option<Image>, Failure> {
        let ask = self.client.ec2().await?.describe_images();
        let (had, ask) = match &settings.ami {
            None => {
                if template.is_some_and(|data| data.image_id().is_none()) {
                    self.problem("AMI", None, "must be set, because the launch template has none".to_owned());
                }
                return Ok(None);
            }
            // EC2 looks it up at each launch.
            Some(AmiChoice::Parameter(_)) => return Ok(None),
            Some(AmiChoice::Id(id)) => (id.clone(), ask.filters(filter("image-id", [id.as_str()]))),
            Some(AmiChoice::Newest { owner, name }) => {
                let named = filter("name", [name.as_str()]);
                (format!("{owner}/{name}"), ask.owners(owner).filters(named).filters(filter("state", ["available"])))
            }
        };
        let mut images = self.client.read("DescribeImages", ask.send().await)?.images.unwrap_or_default();
        let wanted = self.platform_wanted(settings);
        let fits = |image: &Image| wanted.as_deref().is_none_or(|wanted| platform_of_image(image) == Some(wanted));
        if matches!(settings.ami, Some(AmiChoice::Newest { .. })) && images.iter().any(fits) {
            images.retain(fits);
        }
        let newest =
            images.into_iter().max_by(|a, b| (a.creation_date(), a.image_id()).cmp(&(b.creation_date(), b.image_id())));
        if let Some(image) = newest {
            let (id, name) = (image.image_id().unwrap_or("?"), image.name().unwrap_or("without a name"));
            self.findings.push(format!("image {id}: {name}"));
            Ok(Some(image))
        } else {
            self.problem("AMI", Some(had), "there is no such image that this account can use".to_owned());
            Ok(None)
        }
    }

    /// What the types were found to be.
    fn platform_wanted(&self, settings: &Ec2Settings) -> Option<String> {
        let first = settings.instance_types.first()?;
        let told = format!("instance type {first}: ");
        self.findings.iter().find_map(|finding| finding.strip_prefix(&told)).map(ToOwned::to_owned)
    }

    async fn subnets(&mut self, wanted: &[String]) -> Result<(), Failure> {
        if wanted.is_empty() {
            return Ok(());
        }
        let ask = self.client.ec2().await?.describe_subnets().filters(filter("subnet-id", wanted)).send().await;
        let found = self.client.read("DescribeSubnets", ask)?.subnets.unwrap_or_default();
        for subnet in wanted {
            match found.iter().find(|one| one.subnet_id() == Some(subnet)) {
                Some(one) => {
                    self.findings.push(format!("subnet {subnet} in {}", one.availability_zone().unwrap_or("?")));
                }
                None => self.problem("SUBNETS", Some(wanted.join(",")), format!("there is no {subnet} in this region")),
            }
        }
        Ok(())
    }

    async fn groups(&mut self, wanted: &[String]) -> Result<(), Failure> {
        if wanted.is_empty() {
            return Ok(());
        }
        let ask = self.client.ec2().await?.describe_security_groups().filters(filter("group-id", wanted)).send().await;
        let found = self.client.read("DescribeSecurityGroups", ask)?.security_groups.unwrap_or_default();
        for group in wanted {
            match found.iter().find(|one| one.group_id() == Some(group)) {
                Some(one) => self.findings.push(format!("security group {group}: {}", one.group_name().unwrap_or("?"))),
                None => {
                    self.problem(
                        "SECURITY_GROUPS",
                        Some(wanted.join(",")),
                        format!("there is no {group} in this region"),
                    );
                }
            }
        }
        Ok(())
    }

    async fn key(&mut self, wanted: &str) -> Result<(), Failure> {
        let ask = self.client.ec2().await?.describe_key_pairs().filters(filter("key-name", [wanted])).send().await;
        let found = self.client.read("DescribeKeyPairs", ask)?.key_pairs.unwrap_or_default();
        if found.is_empty() {
            let message = "there is no such key pair in this region".to_owned();
            self.problem("KEY_NAME", Some(wanted.to_owned()), message);
        } else {
            self.findings.push(format!("key pair {wanted}"));
        }
        Ok(())
    }
}

/// What Woodpecker's agents call EC2's architectures.
fn platform_of(architecture: &str) -> Option<&'static str> {
    match architecture {
        "x86_64" => Some("linux/amd64"),
        "arm64" => Some("linux/arm64"),
        _ => None,
    }
}

/// How large an image makes its root volume, in GiB.
fn root_size(image: &Image) -> Option<i32> {
    let root = image.block_device_mappings().iter().find(|one| one.device_name() == image.root_device_name())?;
    root.ebs()?.volume_size()
}

fn platform_of_image(image: &Image) -> Option<&'static str> {
    image.architecture().and_then(|architecture| platform_of(architecture.as_str()))
}

/// Of a type that supports several the one that can run today's images.
fn platform_of_type(info: &InstanceTypeInfo) -> Option<&'static str> {
    let supported =
        info.processor_info().map(aws_sdk_ec2::types::ProcessorInfo::supported_architectures).unwrap_or_default();
    supported.iter().map(ArchitectureType::as_str).find_map(platform_of)
}
