//! A create that fails between two requests, after each of them.

use super::{Context, Proxied, Stop, Verdict, seen, shown};
use crate::{conformance::proxy::Fault, contract::State};

/// The maximum number of requests of one create.
const MAX_TURNS: usize = 40;

/// After each number of answers the connection is cut before the next request is sent. So an instance that exists is one whose
/// creation was answered, and its id is known.
pub(super) async fn create_returns_the_id(context: &Context<'_>) -> Verdict {
    let direct = context.direct().await?;
    // That it can be made at all, or the reason why not.
    let spec = context.spec(1);
    let whole = context.make(&direct, &spec).await?;
    context.runs(&direct, &whole).await?;
    context.remove(&direct, &whole).await?;
    let Proxied { proxy, values, .. } = context.proxied().await?;
    for turns in 0..MAX_TURNS {
        proxy.set(Fault::Cut(turns));
        let broken = async {
            let client = context.open(&values).await?;
            let made = client.create(&spec).await;
            drop(client.close().await);
            made
        };
        let made = broken.await;
        let listed = context.own(&direct, &spec).await?;
        let id = match &made {
            Ok(instance) => Some(&instance.id),
            Err(error) => error.instance.as_ref(),
        };
        let Some(exists) = listed.first() else {
            context.demand(made.is_err(), || {
                format!("create, cut off after {turns} answers: expected an error, seen success without an instance")
            });
            continue;
        };
        context.demand(listed.len() == 1 && id == Some(&exists.id), || {
            format!(
                "create, cut off after {turns} answers: expected an error with the id {:?} of the instance that exists, seen {} \
                 with {}, and {} instances",
                exists.id,
                seen(&made),
                id.map_or_else(|| "no id".to_owned(), |id| format!("the id {id:?}")),
                listed.len()
            )
        });
        let again = direct.create(&spec).await;
        let completed = again
            .as_ref()
            .is_ok_and(|again| again.id == exists.id && matches!(again.state, State::Running | State::Pending));
        context.demand(completed, || {
            let seen = again.as_ref().map_or_else(shown, |one| format!("{:?}, {}", one.id, one.state.word()));
            format!(
                "create repeated after it was cut off after {turns} answers: expected {:?}, running, seen {seen}",
                exists.id
            )
        });
        if made.is_ok() {
            return Ok(());
        }
        for one in &listed {
            context.remove(&direct, one).await?;
        }
    }
    Err(Stop::Failed(format!("create: expected at most {MAX_TURNS} requests, seen more")))
}
