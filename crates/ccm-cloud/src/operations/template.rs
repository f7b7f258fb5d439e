//! What new instances are made of: the flags that `instance-create` and `verify` share.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use ccm_drivers::{
    contract::{DriverType, InstanceSpec, UserData},
    settings::Values,
};
use clap::{Args, builder::NonEmptyStringValueParser};

use crate::files::{STANDARD, read_all};

/// The maximum size of user data in bytes; clouds accept much less.
const MOST_USER_DATA: u64 = 16 << 20;

/// What is the same for every instance that a command makes. What is not given is the default of the driver's settings.
#[derive(Args, Debug)]
pub(crate) struct Template {
    /// The id of the region [default: the first one].
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    region: Option<String>,

    /// The id of the zone [default: one of the region].
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    zone: Option<String>,

    /// The image [default: the one of the settings].
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    image: Option<String>,

    /// The instance type [default: the one of the settings].
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    instance_type: Option<String>,

    /// A file that the instance reads at its first start; - is standard input.
    #[arg(long, value_name = "FILE")]
    user_data: Option<PathBuf>,

    /// A network; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    network: Vec<String>,

    /// A label; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    label: Vec<(String, String)>,

    /// What only this driver has; may be repeated. The end of the help lists the options.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    option: Vec<(String, String)>,
}

impl Template {
    /// Returns what to make, without a key and a name.
    pub(super) fn spec(&self, driver: &dyn DriverType) -> anyhow::Result<InstanceSpec> {
        let Self { region, zone, image, instance_type, user_data, network, label, option } = self;
        let text = |given: &Option<String>| given.clone().unwrap_or_default();
        Ok(InstanceSpec {
            region: text(region),
            zone: text(zone),
            image: text(image),
            instance_type: text(instance_type),
            user_data: UserData::new(user_data.as_deref().map(read_user_data).transpose()?.unwrap_or_default()),
            networks: network.clone(),
            labels: unique("--label", label)?,
            options: Values::options(driver.options(), &unique("--option", option)?)?,
            ..InstanceSpec::default()
        })
    }
}

fn read_user_data(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = if path.as_os_str() == STANDARD {
        read_all(io::stdin(), MOST_USER_DATA)
    } else {
        File::open(path).and_then(|file| read_all(file, MOST_USER_DATA))
    };
    bytes.with_context(|| format!("--user-data: failed to read {}", path.display()))
}

/// Parses a name and its value.
pub(super) fn pair(text: &str) -> Result<(String, String), &'static str> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or("must be NAME=VALUE")
}

/// Returns the values by their names. Fails if a name is given twice. The error has no value, because it may be secret.
pub(super) fn unique(flag: &str, pairs: &[(String, String)]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for (name, value) in pairs {
        if found.insert(name.clone(), value.clone()).is_some() {
            bail!("{flag}: {name:?} is given twice");
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_value() {
        let pairs = |texts: &[&str]| texts.iter().map(|text| pair(text).unwrap()).collect::<Vec<_>>();
        let found = unique("--label", &pairs(&["a=b=c", "b="])).unwrap();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), pairs(&["a=b=c", "b="]));
        let problem = unique("--label", &pairs(&["a=secret", "a=secret"])).unwrap_err().to_string();
        assert_eq!(problem, "--label: \"a\" is given twice");
        assert!(pair("a").is_err() && pair("=a").is_err());
    }
}
