//! Asks a driver: each question runs its program once (IO).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ccm_base::error::brief;
use ccm_drivers::{
    contract::{InstanceSpec, Result},
    settings::{ACCOUNT_ID, CA_BUNDLE, Kind, NO_PROXY, PROXY, READ_ONLY, Setting, TIMEOUT, Values},
};

use crate::{
    answer::{Answered, Question},
    problem::Problem,
    program::Program,
    protocol::{Call, Context, Described, Outcome, Request, VERSION},
    run::run,
};

/// The limit of the first answer. No setting has a value by then, and it needs no cloud.
const DESCRIBE: Duration = Duration::from_secs(30);

/// How many times the limit of other operations a long one may take, as in the layer around each driver.
const LONG: u32 = 10;

/// How many of the last lines of standard error are logged.
const LOGGED: usize = 40;

/// A driver and the values of its settings.
pub(crate) struct Caller {
    program: Arc<Program>,
    /// The driver's own settings.
    own: Vec<Setting>,
    values: Values,
    /// The account that was set or, without one, that of the first result. It is the only one from then on.
    account: Mutex<Option<String>>,
}

/// Asks a driver what it is.
pub(crate) async fn describe(program: &Program) -> std::result::Result<Described, Problem> {
    let question =
        Question { program, call: &Call::Describe, limit: Some(DESCRIBE), account: None, masked: &str::to_owned };
    Ok(ask(&question, None, None).await?.result)
}

async fn ask<T: Outcome>(
    question: &Question<'_>,
    context: Option<Context>,
    settings: Option<BTreeMap<String, String>>,
) -> std::result::Result<Answered<T>, Problem> {
    let Question { program, call, limit, .. } = *question;
    let request = Request { protocol_version: VERSION, call: call.clone(), context, settings };
    let input = serde_json::to_vec(&request).map_err(|error| Problem::Supervisor { reason: error.to_string() })?;
    let report = run(program, limit, input).await?;
    let lines = question.lines(&report.stderr);
    for line in &lines[lines.len().saturating_sub(LOGGED)..] {
        tracing::debug!(driver = program.name(), operation = call.name(), stderr = %brief(line));
    }
    question.read(&report)
}

impl Caller {
    pub(crate) fn new(program: Arc<Program>, own: Vec<Setting>, values: Values) -> Self {
        let account = Mutex::new(given(&values, ACCOUNT_ID));
        Self { program, own, values, account }
    }

    /// Runs an operation.
    pub(crate) async fn call<T: Outcome>(&self, call: Call) -> Result<T> {
        self.masked(call, |text| self.values.mask(text)).await
    }

    /// Makes an instance. The secrets of its options and its user data are in no message.
    pub(crate) async fn create<T: Outcome>(&self, spec: &InstanceSpec) -> Result<T> {
        let hidden = user_data(spec);
        let masked = |text: &str| hidden.mask(&spec.options.mask(&self.values.mask(text)));
        self.masked(Call::InstanceCreate(Box::new(spec.into())), masked).await
    }

    async fn masked<T: Outcome>(&self, call: Call, masked: impl Fn(&str) -> String + Sync) -> Result<T> {
        let limit = self.values.duration(TIMEOUT).filter(|limit| !limit.is_zero());
        let limit = limit.map(|limit| if call.is_long() { limit.saturating_mul(LONG) } else { limit });
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let context = self.context(account.clone(), limit);
        let value = |setting: &Setting| {
            let text = given(&self.values, &setting.name)?;
            let text = if setting.kind == Kind::Path { absolute(text) } else { text };
            Some((setting.name.clone().into_owned(), text))
        };
        let settings = self.own.iter().filter_map(value).collect();
        let question = Question { program: &self.program, call: &call, limit, account, masked: &masked };
        let Answered { account, result } = ask(&question, Some(context), Some(settings)).await?;
        self.learn(&call, account)?;
        Ok(result)
    }

    fn context(&self, account_id: Option<String>, limit: Option<Duration>) -> Context {
        // Never 0, which means no limit.
        let seconds = |limit: Duration| limit.as_secs().saturating_add(u64::from(limit.subsec_nanos() > 0));
        Context {
            account_id,
            timeout_seconds: limit.map_or(0, seconds),
            read_only: self.values.is(READ_ONLY),
            proxy: given(&self.values, PROXY),
            no_proxy: given(&self.values, NO_PROXY),
            ca_bundle: given(&self.values, CA_BUNDLE).map(absolute),
        }
    }

    /// Keeps the account of the first result. Another call may have learned another one meanwhile.
    fn learn(&self, call: &Call, found: Option<String>) -> std::result::Result<(), Problem> {
        let Some(found) = found else { return Ok(()) };
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = account.get_or_insert_with(|| found.clone());
        if *expected == found {
            return Ok(());
        }
        let (expected, found) = (brief(expected).into_owned(), brief(&found).into_owned());
        Err(Problem::OtherAccount { operation: call.name(), expected, found })
    }
}

/// The text of a setting that is not empty.
fn given(values: &Values, name: &str) -> Option<String> {
    values.text(name).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The path from the folder of this program: the driver has another one.
fn absolute(path: String) -> String {
    std::path::absolute(&path).map_or(path, |path| path.to_string_lossy().into_owned())
}

/// The user data as the value of a secret, in both forms that a driver may print.
fn user_data(spec: &InstanceSpec) -> Values {
    const NAMES: [&str; 2] = ["text", "base64"];
    let bytes = spec.user_data.bytes();
    let texts = [String::from_utf8_lossy(bytes).into_owned(), STANDARD.encode(bytes)];
    let declared = NAMES.map(|name| Setting::new(name, Kind::Text, "").secret());
    let texts = NAMES.map(str::to_owned).into_iter().zip(texts).collect();
    // Texts of any form are accepted.
    Values::options(&declared, &texts).unwrap_or_default()
}
