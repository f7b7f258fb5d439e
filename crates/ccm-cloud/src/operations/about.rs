//! What a driver can do, and its settings. Asks nothing of the cloud.

use std::{collections::BTreeMap, iter};

use ccm_all_drivers::settings;
use ccm_drivers::{
    contract::{Error, Mode, capabilities as advertised},
    settings::{Declaration, Format, READ_ONLY, Setting, Values, declarations, show},
};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Call;
use crate::{
    failure::DONE,
    output::{Output, table},
    terminal::print,
};

#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    /// A format that a deployment takes: the values of all settings, with comments. Without it, the settings are listed, each with
    /// its value and where that comes from.
    #[arg(long, value_enum, conflicts_with = "output")]
    format: Option<Deployment>,

    #[command(flatten)]
    output: Output,
}

/// The format of a deployment.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Deployment {
    /// Lines for a file of environment variables; without secret values.
    Env,
    /// The manifest of a `ConfigMap` with the values that are not secret.
    Configmap,
    /// The manifest of a Secret with the values that are secret.
    Secret,
}

/// A setting, and its value for this command.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Set {
    #[serde(flatten)]
    declaration: Declaration,
    /// The value, or words that stand for a secret one.
    value: Option<String>,
    /// Where the value comes from.
    source: Option<&'static str>,
}

/// A capability and how the driver has it.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    #[serde(flatten)]
    mode: Mode,
}

pub(super) async fn capabilities(call: &Call, output: Output) -> anyhow::Result<u8> {
    let values = call.values()?;
    // Without a session, which masks secrets.
    let masked = |error: Error| Error { message: values.mask(&error.message), ..error };
    let driver = call.driver.open(&values).await.map_err(masked)?;
    let rows: Vec<_> = advertised(&*driver)
        .into_iter()
        .map(|(capability, mode)| {
            let read_only = mode.read_only || values.is(READ_ONLY);
            Row { name: capability.name(), mode: Mode { read_only, ..mode } }
        })
        .collect();
    driver.close().await.map_err(masked)?;
    output.print(&rows, || {
        let word = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let row = |Row { name, mode }: &Row| [(*name).to_owned(), word(mode.read_only), word(mode.emulated)];
        table(["CAPABILITY", "READ-ONLY", "EMULATED"], rows.iter().map(row))
    })?;
    Ok(DONE)
}

pub(super) fn config(call: &Call, args: &ConfigArgs) -> anyhow::Result<u8> {
    let name = call.driver.name();
    if let Some(format) = args.format {
        let format = match format {
            Deployment::Env => Format::Env,
            Deployment::Configmap => Format::ConfigMap,
            Deployment::Secret => Format::Secret,
        };
        print(&show(name, settings(call.driver), &call.given()?, format)?)?;
        return Ok(DONE);
    }
    let all = set(call)?;
    args.output.print(&all, || {
        let row = |Set { declaration, value, source }: &Set| {
            let Declaration { name, variable, kind, required, secret, help, .. } = declaration.clone();
            let kind = kind.placeholder().to_lowercase();
            let notes = [Some(kind.as_str()), required.then_some("required"), secret.then_some("secret")];
            let notes = notes.into_iter().flatten().collect::<Vec<_>>().join(", ");
            let value = value.as_ref().zip(*source).map(|(value, source)| format!("{value} ({source})"));
            // Both are long, and only the last column has room for them.
            let lines = value.into_iter().chain([format!("{notes}: {help}")]);
            let names = iter::once([name, variable]).chain(iter::repeat_with(<[String; 2]>::default));
            names.zip(lines).map(|([name, variable], line)| [name, variable, line])
        };
        table(["NAME", "VARIABLE", "VALUE, TYPE AND HELP"], all.iter().flat_map(row))
    })?;
    Ok(DONE)
}

/// The settings with their values, also where a required one is missing.
fn set(call: &Call) -> anyhow::Result<Vec<Set>> {
    let (name, given) = (call.driver.name(), call.given()?);
    let optional: Vec<_> =
        settings(call.driver).map(|setting| Setting { required: false, ..setting.clone() }).collect();
    let values = Values::resolve(name, &optional, &given)?;
    let with_value = |declaration: Declaration| {
        // An address may have a password.
        let value = values.shown().find(|(name, _)| *name == declaration.name).map(|(_, value)| value);
        let sources = [("flag", &given.flags), ("variable", &given.environment), ("file", &given.file)];
        let is_given =
            |texts: &BTreeMap<String, String>| texts.get(&declaration.name).is_some_and(|text| !text.is_empty());
        let source = sources.into_iter().find(|(_, texts)| is_given(texts)).map_or("default", |(source, _)| source);
        Set { source: value.is_some().then_some(source), value, declaration }
    };
    Ok(declarations(name, settings(call.driver)).into_iter().map(with_value).collect())
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use ccm_all_drivers::{DriverFlags, Drivers};
    use ccm_drivers::{
        contract::{Driver, DriverType, ErrorKind, Result},
        settings::{Given, Kind},
    };

    use super::*;
    use crate::{activity::Activity, flags::General, output};

    /// A driver that repeats its secret when it is opened.
    struct Leaky([Setting; 1]);

    static LEAKY: Leaky = Leaky([Setting::new("token", Kind::Text, "The token.").secret()]);

    #[async_trait]
    impl DriverType for Leaky {
        fn name(&self) -> &'static str {
            "leaky"
        }

        fn summary(&self) -> &'static str {
            "Repeats its secret."
        }

        fn settings(&self) -> &[Setting] {
            &self.0
        }

        async fn open(&self, values: &Values) -> Result<Box<dyn Driver>> {
            Err(Error::new(ErrorKind::Internal, format!("{:?} is refused", values.text("token"))))
        }
    }

    #[tokio::test]
    async fn a_driver_that_is_opened_without_a_session_shows_no_secret() {
        let given = Given { flags: [("token".to_owned(), "swordfish".to_owned())].into(), ..Given::default() };
        let general = General { config: None, account: None, cloud_config_verify: false, debug: false };
        let drivers = Drivers::load(&DriverFlags::default(), |_| None).await.unwrap();
        let call = Call { drivers, driver: &LEAKY, general, given, is_traced: false, activity: Activity::default() };
        let error = capabilities(&call, Output { format: output::Format::Json }).await.unwrap_err();
        assert!(format!("{error:#}").contains("\"(secret)\") is refused"), "{error:#}");
    }
}
