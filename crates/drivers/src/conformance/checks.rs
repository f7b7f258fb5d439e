//! The checks, each a function that returns at the first step that makes no sense without the one before.

use futures::{FutureExt, future::BoxFuture};

use super::context::{
    Client, Context, Operation, Proxied, Stop, Subject, Verdict, caught, count, filter_words, mark_words, name_of,
    owned_by, seen, shown,
};

mod account;
mod create;
mod faults;
mod garbage;
mod gone;
mod ids;
mod labels;
mod missing;
mod names;
mod partial;
mod state;

/// Runs a check.
pub(super) async fn perform(id: &str, context: &Context<'_>) -> Verdict {
    let check: BoxFuture<'_, Verdict> = match id {
        "I1" => create::twice_is_one(context).boxed(),
        "I2" => gone::delete_twice_succeeds(context).boxed(),
        "I3" => gone::is_not_found(context).boxed(),
        "I4" => state::stopped_exists(context).boxed(),
        "I5" => partial::create_returns_the_id(context).boxed(),
        "I6" => create::settings_do_not_stick(context).boxed(),
        "I7" => account::wrong_credentials(context).boxed(),
        "I8" => faults::unreachable(context).boxed(),
        "I9" => ids::are_unique(context).boxed(),
        "I10" => state::advertised_is_implemented(context).boxed(),
        "I11" => labels::round_trip(context).boxed(),
        "I12" => garbage::does_not_panic(context).boxed(),
        "I13" => ids::are_stable(context).boxed(),
        "I14" => names::beginnings_hit_nobody(context).boxed(),
        "I15" => create::concurrently_is_one(context).boxed(),
        "I16" => account::create_settings_block_no_clean_up(context).boxed(),
        "I17" => account::another_account(context).boxed(),
        "I18" => gone::from_the_next_read(context).boxed(),
        "I19" => missing::is_refused(context).boxed(),
        _ => return Err(Stop::NotRun(format!("there is no check {id:?}"))),
    };
    check.await
}
