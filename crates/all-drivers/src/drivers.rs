//! All drivers of a process.

use std::{ffi::OsString, path::PathBuf};

use ccm_driver_external::{External, PROTOCOL_VERSION, Program};
use ccm_drivers::{
    contract::{DriverType, Error},
    settings::Values,
};

use crate::{
    DriverFlags, built_in,
    external::{Choice, choice, name_of},
    text::suggest::did_you_mean,
    version::VERSION,
};

/// The built-in drivers, and at most one external driver.
pub struct Drivers {
    external: Option<External>,
    /// The path of an external driver that is set and not enabled.
    disabled: Option<PathBuf>,
}

impl Drivers {
    /// Loads the drivers for the rest of the process. An external driver is the one of the flags or of the variables, and is asked to
    /// describe itself.
    ///
    /// Fails unless every guard of an external driver passes: whether it is enabled, its path, its digest, its folder, and its name,
    /// which is the same in `CLOUD_PROVIDER`, for its file and in its first answer. Nothing is executed before the others have passed.
    pub async fn load(
        flags: &DriverFlags,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> anyhow::Result<&'static Self> {
        let (external, disabled) = match choice(flags, variable)? {
            Choice::None => (None, None),
            Choice::Disabled(path) => (None, Some(path)),
            Choice::Pinned(pin) => {
                let program = Program::load(&flags.driver_folder, &pin)?;
                // From here on, what goes wrong is a fault of the driver.
                (Some(External::describe(program).await.map_err(Error::from)?), None)
            }
        };
        Ok(Box::leak(Box::new(Self { external, disabled })))
    }

    /// The built-in drivers only, for the rest of the process.
    pub fn of_program() -> &'static Self {
        Box::leak(Box::new(Self { external: None, disabled: None }))
    }

    /// All drivers, those that are built in first.
    pub fn all(&self) -> impl Iterator<Item = &dyn DriverType> {
        let external = self.external.iter().map(|driver| driver as &dyn DriverType);
        built_in().iter().map(|driver| &**driver).chain(external)
    }

    /// The driver with a name.
    pub fn named(&self, name: &str) -> Option<&dyn DriverType> {
        self.all().find(|driver| driver.name() == name)
    }

    /// The names of all drivers.
    pub fn names(&self) -> Vec<&str> {
        self.all().map(DriverType::name).collect()
    }

    /// The external driver, if there is one.
    pub fn external(&self) -> Option<&External> {
        self.external.as_ref()
    }

    /// The program of a driver; `None` if it is built in.
    pub fn program(&self, name: &str) -> Option<&Program> {
        self.external.as_ref().filter(|driver| driver.name() == name).map(External::program)
    }

    /// The message for a name that no driver has. `others` are further names that the user may have meant.
    pub fn unknown(&self, name: &str, others: &[&str]) -> String {
        let names = self.names();
        let hint = did_you_mean(name, names.iter().chain(others).copied());
        let what = if others.is_empty() { "driver" } else { "driver or command" };
        let disabled = self.disabled.as_ref().filter(|path| name_of(path) == name).map(|path| {
            format!("; {} is set and not enabled: set ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN to true", path.display())
        });
        let advice = disabled.or_else(|| {
            let advice = "; a driver in a program of its own needs --driver PATH@sha256:HEX and --driver-folder FOLDER";
            self.external.is_none().then(|| advice.to_owned())
        });
        format!("there is no {what} {name:?}{hint}; the drivers are {}{}", names.join(", "), advice.unwrap_or_default())
    }

    /// Logs which driver runs, of which program, and with which settings, without the secret ones.
    pub fn log(&self, driver: &dyn DriverType, values: &Values) {
        let name = driver.name();
        let Some(external) = self.external.as_ref().filter(|external| external.name() == name) else {
            tracing::info!(driver = name, version = VERSION, settings = ?values, "built-in driver");
            return;
        };
        let program = external.program();
        tracing::info!(
            driver = name,
            path = %program.path().display(),
            digest = program.digest(),
            protocol = PROTOCOL_VERSION,
            version = external.version(),
            settings = ?values,
            "external driver"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[tokio::test]
    async fn a_name_that_no_driver_has_is_explained() {
        let path = "/cloud-providers/libvirt.py";
        let of = async |variables: &[(&str, &str)]| {
            let variables: BTreeMap<_, _> = variables.iter().copied().collect();
            Drivers::load(&DriverFlags::default(), |key| variables.get(key).map(OsString::from)).await.unwrap()
        };
        let disabled = of(&[("CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH", path), ("CLOUD_PROVIDER", "libvirt")]).await;
        assert!(disabled.external().is_none() && disabled.named("libvirt").is_none());
        let message = disabled.unknown("libvirt", &[]);
        assert!(message.starts_with("there is no driver \"libvirt\"; the drivers are "), "{message}");
        assert!(
            message.ends_with(&format!(
                "; {path} is set and not enabled: set ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN to true"
            ))
        );
        assert!(!message.contains("--driver") && !disabled.unknown("other", &[]).contains(path));
        let none = of(&[]).await;
        let message = none.unknown("libvirt", &[]);
        assert!(
            message.contains("--driver PATH@sha256:HEX and --driver-folder") && !message.contains("enabled"),
            "{message}"
        );
        assert!(
            none.unknown("versoin", &["version"])
                .starts_with("there is no driver or command \"versoin\" (did you mean `version`?)")
        );
        for driver in none.all() {
            assert!(none.named(driver.name()).is_some() && none.program(driver.name()).is_none());
        }
    }
}
