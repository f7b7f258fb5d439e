//! A cloud that is not reached.

use super::{Context, Operation, Proxied, Stop, Subject, Verdict, seen};
use crate::{
    conformance::proxy::{Fault, Nowhere},
    contract::{Error, ErrorKind, Result},
};

pub(super) async fn unreachable(context: &Context<'_>) -> Verdict {
    let Proxied { proxy, values, endpoint } = context.proxied().await?;
    let direct = context.direct().await?;
    let subject = context.subject(&direct).await;
    let nowhere =
        Nowhere::like(&endpoint).map_err(|error| Stop::NotRun(format!("an endpoint without a cloud: {error}")))?;
    let mut operations = vec![Operation::Verify];
    if direct.has_instances() {
        let Subject { read, delete, .. } = &subject;
        operations.extend([Operation::List, Operation::Get(read.clone()), Operation::Delete(delete.clone())]);
    }

    let connected = context.open(&values).await;
    if let Ok(client) = &connected {
        // What a driver keeps of the cloud it gets here.
        for operation in client.reads(&subject.read) {
            drop(client.perform(&operation).await);
        }
    }
    proxy.set(Fault::Refuse);
    let gone = context.through(context.plan.values, &nowhere.endpoint).await?;
    for (how, opened) in [
        ("while the cloud closes each connection, with a driver that was connected", connected),
        ("while the cloud closes each connection", context.open(&values).await),
        ("while nobody listens at the endpoint", context.open(&gone).await),
    ] {
        for operation in &operations {
            let result = match &opened {
                Ok(client) => client.perform(operation).await,
                Err(error) => Err(error.clone()),
            };
            context.demand(is_unreachable(&result), || {
                format!("{operation} {how}: expected Unavailable or Timeout, seen {}", seen(&result))
            });
        }
    }
    if subject.own {
        let got = direct.get(&subject.read).await;
        context.demand(got.is_ok(), || {
            format!(
                "get of {:?}, whose delete did not reach the cloud: expected the instance, seen {}",
                subject.read,
                seen(&got)
            )
        });
    }
    Ok(())
}

fn is_unreachable(result: &Result<()>) -> bool {
    matches!(result, Err(Error { kind: ErrorKind::Unavailable | ErrorKind::Timeout, .. }))
}
