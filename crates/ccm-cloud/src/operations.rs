//! The commands of a driver: their flags, and their work.

use std::collections::BTreeMap;

use anyhow::Context;
use ccm_all_drivers::{Drivers, resolve, settings};
use ccm_drivers::{
    contract::{Capability, Driver, DriverType, Error, ErrorKind, Instances, ResourceKind},
    middleware::Session,
    settings::{Given, READ_ONLY, Values},
};
use clap::Subcommand;

use crate::{activity::Activity, failure::DONE, flags::General, output::Output, terminal::say};

mod about;
mod account;
mod cluster;
mod create;
mod instances;
mod inventory;
mod run;
mod sweep;
mod target;
mod template;
mod topology;
mod verify;

/// The commands of a driver.
#[derive(Debug, Subcommand)]
pub(crate) enum Operation {
    /// Show who the credentials belong to.
    AccountShow(Output),
    /// List the regions.
    RegionList(Output),
    /// Show a region.
    RegionShow(topology::ShowArgs),
    /// List the zones.
    ZoneList(topology::ZonesArgs),
    /// Show a zone.
    ZoneShow(topology::ShowArgs),
    /// List instances, whoever made them.
    InstanceList(instances::ListArgs),
    /// Show an instance.
    InstanceShow(instances::OneArgs),
    /// Make an instance and start it, or return the one that was made with the same key, which may be stopped.
    InstanceCreate(Box<create::CreateArgs>),
    /// Delete instances. One that is gone is a success. Asks nothing.
    InstanceDelete(instances::DeleteArgs),
    /// Start an instance; one that runs is a success.
    InstanceStart(instances::ChangeArgs),
    /// Stop an instance; one that is stopped is a success.
    InstanceStop(instances::ChangeArgs),
    /// Run a command inside of an instance, and print its output at its end. It has no standard input.
    ///
    /// A command may take ten times as long as the setting timeout: give --timeout 0 or a higher one for a longer one.
    /// Exit code: 0 if the command ended with 0, 1 if it ended with another one, which is printed.
    InstanceRun(run::RunArgs),
    /// Show what an instance has used since its start.
    InstanceMetrics(instances::OneArgs),
    /// Show the instances of a cluster whose owners are gone, and with --yes delete them.
    ///
    /// An owner is gone if two complete reads of all owners, a grace period apart, do not have its UID. Instances without an owner, without
    /// a cluster id or of another cluster are never deleted. If a list cannot be read, nothing is deleted.
    /// A signal stops it before the next deletion; what was done until then is printed.
    /// Exit code: 0 done; 1 deleting would leave no instance of the cluster, and --all was not given.
    InstanceSweep(sweep::SweepArgs),
    /// List the networks.
    NetworkList(inventory::ListArgs),
    /// List the machines that instances run on.
    HostList(inventory::ListArgs),
    /// List the places for disks.
    StorageList(inventory::ListArgs),
    /// List the images.
    ImageList(inventory::ListArgs),
    /// List the instance types.
    InstanceTypeList(inventory::ListArgs),
    /// List what the driver can do. Asks nothing of the cloud.
    Capabilities(Output),
    /// Check the credentials; with --config and without --account, those of all accounts of the file.
    VerifyCredentials(Output),
    /// Check that the driver does what the contract of drivers says.
    ///
    /// Makes at most five instances, prints their names before it begins, and deletes them at the end, also after SIGINT, SIGTERM or
    /// SIGHUP. It touches nothing else. With --read-only it makes none.
    /// Exit code: 0 at least one check has passed, none has failed, and no instance is left; otherwise 1.
    Verify(Box<verify::VerifyArgs>),
    /// Show the settings of the driver, or their values as a deployment takes them.
    Config(about::ConfigArgs),
}

impl Operation {
    /// The capability that the command changes something with, if it does.
    fn changes(&self) -> Option<Capability> {
        match self {
            Self::InstanceCreate(_) | Self::InstanceDelete(_) | Self::InstanceStart(_) | Self::InstanceStop(_) => {
                Some(Capability::Instances)
            }
            Self::InstanceSweep(args) => args.yes.then_some(Capability::Instances),
            Self::InstanceRun(_) => Some(Capability::RunCommand),
            _ => None,
        }
    }
}

/// A command of a driver, and all that was given with it.
pub(crate) struct Call {
    /// All drivers.
    pub(crate) drivers: &'static Drivers,
    /// The driver.
    pub(crate) driver: &'static dyn DriverType,
    /// The flags that are not settings.
    pub(crate) general: General,
    /// The values of settings, but those of the file.
    pub(crate) given: Given,
    /// Whether operations are logged.
    pub(crate) is_traced: bool,
    /// What is in flight.
    pub(crate) activity: Activity,
}

impl Call {
    /// What was given, with the settings of the account that is to be used.
    fn given(&self) -> anyhow::Result<Given> {
        Ok(self.given_with(self.general.account_settings(self.driver.name())?))
    }

    /// The same with settings of a file. Names the variables that win over them, because one meant for another account would count.
    fn given_with(&self, file: BTreeMap<String, String>) -> Given {
        let given = Given { file, ..self.given.clone() };
        let wins = |name: &str| {
            let (variable, set) = (given.environment.get(name), given.file.get(name));
            !given.flags.contains_key(name) && set.is_some() && variable.is_some_and(|variable| set != Some(variable))
        };
        for setting in settings(self.driver).filter(|setting| wins(&setting.name)) {
            let variable = setting.variable(self.driver.name());
            say(&format!(
                "ccm-cloud: note: the variable {variable} wins over the setting {} of --config",
                setting.name
            ));
        }
        given
    }

    fn checked(&self, given: &Given) -> anyhow::Result<Values> {
        resolve(self.driver, given, self.general.config.as_deref())
    }

    /// The values of all settings.
    fn values(&self) -> anyhow::Result<Values> {
        self.checked(&self.given()?)
    }

    /// Opens the driver and verifies its credentials.
    async fn open(&self, values: &Values) -> anyhow::Result<Session> {
        if self.is_traced {
            self.drivers.log(self.driver, values);
        }
        let sessions = self.activity.sessions.clone();
        Ok(Session::open_listed(self.driver, values, None, self.is_traced, sessions).await?)
    }

    /// Does some work with a driver, and closes it.
    async fn with_session<T>(
        &self,
        values: &Values,
        work: impl AsyncFnOnce(&Session) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let session = self.open(values).await?;
        let done = work(&session).await;
        let closed = session.close().await.context("failed to close the driver");
        let done = done?;
        closed?;
        Ok(done)
    }

    /// The instances of a session.
    fn instances<'s>(&self, session: &'s Session) -> anyhow::Result<&'s dyn Instances> {
        Ok(session.instances().ok_or_else(|| self.lacks("instances"))?)
    }

    fn lacks(&self, what: &str) -> Error {
        Error::not_supported(format!("the driver {} has no {what}", self.driver.name()))
    }

    /// Runs a command, and returns the exit code.
    pub(crate) async fn run(&self, operation: &Operation) -> anyhow::Result<u8> {
        match operation {
            Operation::Capabilities(output) => return about::capabilities(self, *output).await,
            Operation::VerifyCredentials(output) => return account::verify(self, *output).await,
            Operation::Verify(args) => return verify::run(self, args).await,
            Operation::Config(args) => return about::config(self, args),
            _ => {}
        }
        let values = self.values()?;
        self.with_session(&values, async |session| {
            // Before anything is looked up: an instance that does not exist would be a success of instance-delete.
            if let Some(capability) = operation.changes().filter(|capability| session.mode(*capability).read_only) {
                let reason =
                    if values.is(READ_ONLY) { "the setting readOnly is true" } else { "the driver only reads" };
                return Err(Error::new(ErrorKind::ReadOnly, format!("{}: {reason}", capability.name())).into());
            }
            match operation {
                Operation::AccountShow(output) => account::show(session, *output)?,
                Operation::RegionList(output) => topology::regions(session, *output).await?,
                Operation::RegionShow(args) => topology::region(session, args).await?,
                Operation::ZoneList(args) => topology::zones(session, args).await?,
                Operation::ZoneShow(args) => topology::zone(session, args).await?,
                Operation::InstanceList(args) => instances::list(self.instances(session)?, args).await?,
                Operation::InstanceShow(args) => instances::show(self.instances(session)?, args).await?,
                Operation::InstanceCreate(args) => create::run(self, session, args).await?,
                Operation::InstanceDelete(args) => return instances::delete(self.instances(session)?, args).await,
                Operation::InstanceStart(args) => instances::start(self.instances(session)?, args).await?,
                Operation::InstanceStop(args) => instances::stop(self.instances(session)?, args).await?,
                Operation::InstanceRun(args) => return run::run(self, session, args).await,
                Operation::InstanceMetrics(args) => instances::metrics(self, session, args).await?,
                Operation::InstanceSweep(args) => return sweep::run(self, session, args).await,
                Operation::NetworkList(args) => inventory::list(self, session, ResourceKind::Network, args).await?,
                Operation::HostList(args) => inventory::list(self, session, ResourceKind::Host, args).await?,
                Operation::StorageList(args) => inventory::list(self, session, ResourceKind::Storage, args).await?,
                Operation::ImageList(args) => inventory::list(self, session, ResourceKind::Image, args).await?,
                Operation::InstanceTypeList(args) => {
                    inventory::list(self, session, ResourceKind::InstanceType, args).await?;
                }
                // They need no session, and have been run.
                Operation::Capabilities(_)
                | Operation::VerifyCredentials(_)
                | Operation::Verify(_)
                | Operation::Config(_) => {}
            }
            Ok(DONE)
        })
        .await
    }
}
