//! `account-show` and `verify-credentials`.

use anyhow::{Context, anyhow};
use ccm_drivers::{
    contract::{AccountInfo, Driver},
    middleware::Session,
    settings::{AccountFile, check_account_ids},
};
use serde::Serialize;

use super::Call;
use crate::{
    failure::DONE,
    output::{Output, fields, table},
};

pub(super) fn show(session: &Session, output: Output) -> anyhow::Result<()> {
    let AccountInfo { id, name, sub_accounts } = session.account_info();
    output.print(session.account_info(), || {
        let parts = sub_accounts.iter().map(|part| ("sub-account", format!("{} {}", part.id, part.name)));
        fields([("id", id.clone()), ("name", name.clone())].into_iter().chain(parts))
    })
}

/// An account whose credentials are right.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    /// Its name in the file; empty without a file.
    account: String,
    #[serde(flatten)]
    info: AccountInfo,
    /// Whether what the settings name was checked, too.
    settings_verified: bool,
}

/// Verifies the credentials of one account or, with a file and without a name, of all accounts of the file.
pub(super) async fn verify(call: &Call, output: Output) -> anyhow::Result<u8> {
    let file = call.general.file()?.filter(|_| call.general.account.is_none());
    let mut all = Vec::new();
    match &file {
        None => {
            let name = call.general.account.clone().unwrap_or_default();
            all.push((name, call.values()?));
        }
        Some(file) => {
            let of_driver = file.accounts().iter().filter(|account| account.driver == call.driver.name());
            for account in of_driver {
                let checked = call.checked(&call.given_with(account.settings.clone()));
                all.push((account.name.clone(), checked.with_context(|| format!("account {:?}", account.name))?));
            }
            if all.is_empty() {
                // It has the words for it.
                call.values()?;
            }
        }
    }
    let checks_settings = call.general.cloud_config_verify;
    let mut verified = Vec::new();
    for (account, values) in all {
        let info = call.with_session(&values, async |session| {
            if checks_settings {
                session.account().verify_settings().await?;
            }
            Ok(session.account_info().clone())
        });
        let info = info.await.map_err(|error| match account.as_str() {
            "" => error,
            name => error.context(format!("account {name:?}")),
        })?;
        verified.push(Row { account, info, settings_verified: checks_settings });
    }
    let of_driver = file.iter().flat_map(AccountFile::accounts).filter(|account| account.driver == call.driver.name());
    let ids = of_driver.zip(&verified).flat_map(|(account, row)| row.info.ids().map(move |id| (account, id)));
    check_account_ids(ids).map_err(|problem| {
        let problem = call.general.problem(&problem);
        // A variable counts for each account of the file.
        if call.given.environment.is_empty() { problem } else { anyhow!("{problem}, or unset variables of the driver") }
    })?;
    output.print(&verified, || {
        let checked = if checks_settings { "credentials, settings" } else { "credentials" };
        let rows = verified
            .iter()
            .map(|Row { account, info, .. }| [account.clone(), info.id.clone(), info.name.clone(), checked.to_owned()]);
        table(["ACCOUNT", "ID", "NAME", "VERIFIED"], rows)
    })?;
    Ok(DONE)
}
