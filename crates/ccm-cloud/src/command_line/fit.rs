//! Whether the command line can have an external driver: its name and its settings become a command and flags.

use std::any::TypeId;

use ccm_all_drivers::DriverFlags;
use ccm_drivers::contract::DriverType;
use clap::{Args, Command, Subcommand};

use super::{NAME, own::Own};
use crate::{
    flags::{General, argument},
    operations::Operation,
};

/// Fails with the first name of a driver that means something else on the command line. The driver has to be changed.
pub(super) fn check(driver: &dyn DriverType) -> Result<(), String> {
    let own = Own::augment_subcommands(Command::new(NAME));
    if driver.name() == "help" || own.find_subcommand(driver.name()).is_some() {
        return Err(format!("{NAME} has a command of the name {:?}: rename the driver", driver.name()));
    }
    let program = DriverFlags::augment_args(General::augment_args(Command::new(NAME)));
    let operations = Operation::augment_subcommands(Command::new(NAME));
    for setting in driver.settings() {
        let flag = argument(driver.name(), setting);
        let taken = |whose: &str| {
            Err(format!("the setting {:?}: the flag --{} is {whose}: rename the setting", setting.name, setting.flag()))
        };
        let own = program.get_arguments().any(|own| own.get_long() == flag.get_long() || own.get_id() == flag.get_id());
        if own || setting.flag() == "help" {
            return taken("one of ccm-cloud");
        }
        for operation in operations.get_subcommands() {
            // One that means the same, such as --image of instance-create, gives its value to both.
            let other = operation.get_arguments().find(|other| {
                let (has_id, has_flag) = (other.get_id() == flag.get_id(), other.get_long() == flag.get_long());
                let takes_text = other.get_value_parser().type_id() == TypeId::of::<String>();
                (has_id || has_flag) && !(has_id && has_flag && takes_text && !other.is_required_set())
            });
            if other.is_some() {
                return taken(&format!("one of {}", operation.get_name()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ccm_drivers::{
        contract::{Driver, Result},
        settings::{Kind, Setting, Values},
    };

    use super::*;

    /// A driver that is only declared.
    struct Declared(&'static str, Vec<Setting>);

    #[async_trait::async_trait]
    impl DriverType for Declared {
        fn name(&self) -> &str {
            self.0
        }

        fn summary(&self) -> &'static str {
            "Declared."
        }

        fn settings(&self) -> &[Setting] {
            &self.1
        }

        async fn open(&self, _: &Values) -> Result<Box<dyn Driver>> {
            unreachable!("it is never opened")
        }
    }

    #[test]
    fn a_name_that_means_something_else_is_refused() {
        let checked = |name, settings: &[&'static str]| {
            let settings = settings.iter().map(|name| Setting::new(name, Kind::Text, "")).collect();
            check(&Declared(name, settings))
        };
        checked("cloud", &["uri", "image", "network", "region"]).unwrap();
        for name in ["drivers", "new-driver", "help", "version"] {
            assert!(checked(name, &[]).unwrap_err().contains("rename the driver"), "{name}");
        }
        for (setting, whose) in [
            ("config", "one of ccm-cloud"),
            ("debug", "one of ccm-cloud"),
            ("driver", "one of ccm-cloud"),
            ("driverFolder", "one of ccm-cloud"),
            ("help", "one of ccm-cloud"),
            ("key", "one of instance-create"),
            ("label", "one of instance-create"),
            ("yes", "one of instance-sweep"),
            ("output", "one of account-show"),
            ("instance", "one of instance-show"),
        ] {
            let problem = checked("cloud", &["uri", setting]).unwrap_err();
            assert!(problem.contains(whose) && problem.contains("rename the setting"), "{problem}");
        }
    }
}
