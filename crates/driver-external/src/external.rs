//! A driver in a program of its own, before it has an account.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use ccm_base::{error::problem, text::terminal::printable};
use ccm_drivers::{
    contract::{Capability, Driver, DriverType, Endpoint, Error, ErrorKind, Mode, ResourceKind, Result},
    settings::{NETWORK, Setting, Values, problems},
};

use crate::{
    caller::{self, Caller},
    driver::{Capabilities, Opened},
    problem::Problem,
    program::Program,
    protocol::{Call, Connects, Declared, Described, Place},
};

/// A driver in a program of its own, which has said what it is.
pub struct External {
    program: Arc<Program>,
    name: String,
    version: String,
    summary: String,
    /// Its own settings, and behind them [`NETWORK`].
    settings: Vec<Setting>,
    options: Vec<Setting>,
    capabilities: Arc<Capabilities>,
}

impl External {
    /// Asks a driver what it is. Fails if its name is not that of its file, and if what it declares cannot work.
    pub async fn describe(program: Program) -> std::result::Result<Self, Problem> {
        let described = caller::describe(&program).await.map_err(|problem| match problem {
            Problem::Answered(source) => Problem::Undescribed { path: program.path().to_owned(), source },
            other => other,
        })?;
        let Described { name, version, summary, settings, options, capabilities, id_prefix } = described;
        let expected = program.name();
        if name != expected {
            return Err(Problem::OtherName { path: program.path().to_owned(), expected, found: clean(&name) });
        }
        let declared = |all: Vec<Declared>| all.into_iter().map(|one| one.setting(clean));
        let mut settings: Vec<_> = declared(settings).collect();
        settings.extend(NETWORK.iter().cloned());
        let options: Vec<_> = declared(options).collect();
        let found = problems(&name, &settings, &options);
        if !found.is_empty() {
            return Err(Problem::Declaration { path: program.path().to_owned(), reason: clean(&found.join("; ")) });
        }
        let modes = capabilities.into_iter().filter_map(|(name, mode)| Some((capability(&name)?, Mode::from(mode))));
        let capabilities = Arc::new(Capabilities::new(modes.collect(), clean(&id_prefix)));
        let (program, version, summary) = (Arc::new(program), clean(&version), clean(&summary));
        Ok(Self { program, name, version, summary, settings, options, capabilities })
    }

    /// The file of the driver, with its path and its digest.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The version that the driver says it has.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn caller(&self, values: &Values) -> Caller {
        let own = &self.settings[..self.settings.len() - NETWORK.len()];
        Caller::new(self.program.clone(), own.to_vec(), values.clone())
    }

    async fn connects(&self, values: &Values, through: Option<Place>) -> Result<Option<Connects>> {
        let answer = self.caller(values).call::<Connects>(Call::Endpoint { through }).await;
        match answer {
            Ok(connects) => Ok(Some(connects)),
            Err(error) if error.kind == ErrorKind::NotSupported => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Makes a text of the driver fit for help and messages.
fn clean(text: &str) -> String {
    problem(printable(text))
}

fn capability(name: &str) -> Option<Capability> {
    let inventory = ResourceKind::ALL.into_iter().map(Capability::Inventory);
    let others =
        [Capability::Account, Capability::Topology, Capability::Instances, Capability::Metrics, Capability::RunCommand];
    inventory.chain(others).find(|capability| capability.name() == name)
}

#[async_trait]
impl DriverType for External {
    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> &str {
        &self.summary
    }

    fn settings(&self) -> &[Setting] {
        &self.settings
    }

    fn options(&self) -> &[Setting] {
        &self.options
    }

    async fn open(&self, values: &Values) -> Result<Box<dyn Driver>> {
        Ok(Box::new(Opened::new(self.caller(values), self.capabilities.clone())))
    }

    async fn endpoint(&self, values: &Values) -> Result<Option<Endpoint>> {
        let connects = self.connects(values, None).await?;
        Ok(connects.and_then(|connects| connects.endpoint).map(Endpoint::from))
    }

    async fn through(&self, values: &Values, endpoint: &Endpoint) -> Result<Values> {
        let connects = self.connects(values, Some(endpoint.into())).await?;
        let settings: BTreeMap<_, _> = connects.map(|connects| connects.settings).unwrap_or_default();
        settings.iter().try_fold(values.clone(), |values, (name, text)| {
            if self.settings.iter().any(|setting| setting.name == *name) {
                return Ok(values.with(name, text));
            }
            let reason = format!("it changes the setting {:?}, which the driver has not declared", clean(name));
            Err(Error::from(Problem::WrongAnswer { operation: "endpoint", reason }))
        })
    }
}
