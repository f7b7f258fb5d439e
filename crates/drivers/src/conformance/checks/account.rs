//! Who the credentials belong to, and settings that only create needs.

use super::{Client, Context, Operation, Stop, Subject, Verdict, seen, shown};
use crate::{
    contract::ErrorKind,
    settings::{ACCOUNT_ID, Kind, Values},
};

/// The settings that only create needs, by the names that drivers give them.
const OF_CREATE: [&str; 7] = ["image", "network", "networks", "instanceType", "net", "pool", "volName"];

/// Another value than any that is right.
const WRONG: &str = "ccm-verify-wrong";

pub(super) async fn wrong_credentials(context: &Context<'_>) -> Verdict {
    let values = match &context.plan.wrong_credentials {
        Some(values) => values.clone(),
        None => with_wrong_secrets(context)?,
    };
    let direct = context.direct().await?;
    let subject = context.subject(&direct).await;
    let Some(wrong) = opened(context, &values, "with wrong credentials").await? else { return Ok(()) };
    let mut operations = wrong.reads(&subject.read);
    if wrong.has_instances() {
        operations.push(Operation::Delete(subject.delete.clone()));
    }
    all_are_refused(context, &wrong, &operations, "with wrong credentials").await;
    still_exists(context, &direct, &subject).await;
    Ok(())
}

fn with_wrong_secrets(context: &Context<'_>) -> std::result::Result<Values, Stop> {
    let (mut values, mut any) = (context.plan.values.clone(), false);
    for setting in context.plan.driver.settings() {
        // The value of another type would be refused before the cloud is asked.
        if setting.secret && setting.kind == Kind::Text && values.text(&setting.name).is_some() {
            (values, any) = (values.with(&setting.name, WRONG), true);
        }
    }
    if any {
        return Ok(values);
    }
    Err(Stop::NotRun(
        "no setting that has a value is a secret text: give wrong credentials with --wrong NAME=VALUE".to_owned(),
    ))
}

pub(super) async fn another_account(context: &Context<'_>) -> Verdict {
    let direct = context.direct().await?;
    let account = direct.verify().await.map_err(|error| Stop::NotRun(format!("verify: {}", shown(&error))))?;
    let subject = context.subject(&direct).await;
    let values = context.plan.values.clone().with(ACCOUNT_ID, &format!("{}-of-another", account.id));
    let Some(other) = opened(context, &values, "with the id of another account").await? else { return Ok(()) };
    let mut operations = other.reads(&subject.read);
    operations.extend([Operation::Regions, Operation::Zones]);
    if other.has_instances() {
        operations.push(Operation::Delete(subject.delete.clone()));
        if !context.plan.read_only {
            operations.push(Operation::Stop(subject.delete.clone()));
            operations.push(Operation::Start(subject.delete.clone()));
            operations.push(Operation::Create(Box::new(context.spec(2))));
        }
    }
    all_are_refused(context, &other, &operations, "with the id of another account").await;
    still_exists(context, &direct, &subject).await;
    Ok(())
}

/// Opens a driver that no operation may succeed with. Where `open` refuses, it has to have the class.
async fn opened<'c>(
    context: &'c Context<'c>,
    values: &Values,
    how: &str,
) -> std::result::Result<Option<Client<'c>>, Stop> {
    match context.open(values).await {
        Ok(client) => Ok(Some(client)),
        Err(error) if error.kind == ErrorKind::InvalidCredentials => Ok(None),
        Err(error) => Err(Stop::Failed(format!("open {how}: expected InvalidCredentials, seen {}", shown(&error)))),
    }
}

async fn all_are_refused(context: &Context<'_>, client: &Client<'_>, operations: &[Operation], how: &str) {
    for operation in operations {
        let result = client.perform(operation).await;
        let refused = matches!(&result, Err(error) if error.kind == ErrorKind::InvalidCredentials);
        context.demand(refused, || format!("{operation} {how}: expected InvalidCredentials, seen {}", seen(&result)));
    }
}

/// Demands that an instance of the run is still there.
async fn still_exists(context: &Context<'_>, direct: &Client<'_>, subject: &Subject) {
    if subject.own {
        let got = direct.get(&subject.read).await;
        context.demand(got.is_ok(), || {
            format!(
                "get of {:?}, whose delete had to be refused: expected the instance, seen {}",
                subject.read,
                seen(&got)
            )
        });
    }
}

pub(super) async fn create_settings_block_no_clean_up(context: &Context<'_>) -> Verdict {
    let declared = context.plan.driver.settings().iter().map(|setting| &*setting.name);
    let names: Vec<_> = declared.filter(|name| OF_CREATE.contains(name)).collect();
    if names.is_empty() {
        return Err(Stop::NotRun(format!("the driver has none of the settings {}", OF_CREATE.join(", "))));
    }
    let direct = context.direct().await?;
    if !direct.has_instances() {
        return Err(Stop::NotRun("the driver has no instances".to_owned()));
    }
    let subject = context.subject(&direct).await;
    let how = format!("while the settings {} name what does not exist", names.join(", "));
    let values = names.iter().fold(context.plan.values.clone(), |values, name| values.with(name, WRONG));
    let client = context.open(&values).await;
    let client =
        client.map_err(|error| Stop::Failed(format!("open {how}: expected success, seen {}", shown(&error))))?;
    let mut operations = vec![Operation::Verify, Operation::List];
    if subject.exists {
        operations.push(Operation::Get(subject.read.clone()));
    }
    if subject.own {
        operations.push(Operation::Delete(subject.delete.clone()));
    }
    for operation in operations {
        let result = client.perform(&operation).await;
        context.demand(result.is_ok(), || format!("{operation} {how}: expected success, seen {}", seen(&result)));
    }
    if subject.own {
        let left = context.own(&direct, &context.spec(1)).await?;
        context.demand(left.is_empty(), || {
            format!("delete {how}: expected that {:?} is gone, seen that it is there", subject.delete)
        });
    }
    Ok(())
}
