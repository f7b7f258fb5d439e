//! Answers of the cloud that are none.

use std::sync::Arc;

use super::{Context, Operation, Proxied, Verdict, caught, seen};
use crate::{conformance::proxy::Fault, contract::ErrorKind};

/// The maximum number of answers that an operation is let have before the garbage.
const MAX_TURNS: usize = 12;

/// The length of a line without an end.
const LONG: usize = 256 << 10;

/// How many of the answers a create gets: each may make an instance.
const FOR_CREATE: usize = 4;

struct Answer {
    name: String,
    bytes: Arc<[u8]>,
    /// Whether it cannot be meant as "there is none".
    is_garbage: bool,
}

/// The answers, those first that are the most likely to be taken for one.
fn answers() -> Vec<Answer> {
    let random: Vec<u8> =
        (1..=256u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
    let bodies: [(&str, Vec<u8>, bool); 7] = [
        ("an empty object", b"{}".to_vec(), false),
        ("null", b"null".to_vec(), false),
        ("an empty list", b"[]".to_vec(), false),
        ("half an object", b"{\"".to_vec(), true),
        ("nothing", Vec::new(), false),
        ("random bytes", random, true),
        ("a long line", vec![b'x'; LONG], true),
    ];
    let http = bodies.iter().map(|(name, body, is_garbage)| {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        let name = format!("{name} over HTTP");
        Answer { name, bytes: [head.as_bytes(), body].concat().into(), is_garbage: *is_garbage }
    });
    let plain = bodies.iter().map(|(name, body, is_garbage)| {
        let end: &[u8] = if body.is_empty() { b"" } else { b"\n" };
        Answer { name: (*name).to_owned(), bytes: [body, end].concat().into(), is_garbage: *is_garbage }
    });
    http.zip(plain).flat_map(|(http, plain)| [http, plain]).collect()
}

pub(super) async fn does_not_panic(context: &Context<'_>) -> Verdict {
    let Proxied { proxy, values, .. } = context.proxied().await?;
    let direct = context.direct().await?;
    let subject = context.subject(&direct).await;
    let mut operations = direct.reads(&subject.read);
    operations.extend([Operation::Regions, Operation::Zones]);
    if direct.has_instances() {
        operations.push(Operation::Delete(subject.delete.clone()));
        if !context.plan.read_only && context.demand_first().is_ok() {
            operations.push(Operation::Create(Box::new(context.spec(2))));
        }
    }
    for operation in &operations {
        let is_create = matches!(operation, Operation::Create(_));
        let mut most = MAX_TURNS;
        for answer in answers().into_iter().take(if is_create { FOR_CREATE } else { usize::MAX }) {
            for turns in 0..most {
                proxy.set(Fault::Garbage(turns, Arc::clone(&answer.bytes)));
                let asked = async {
                    let client = context.open(&values).await?;
                    let result = client.perform(operation).await;
                    drop(client.close().await);
                    result
                };
                let what = || format!("{operation}, answered with {} after {turns} answers", answer.name);
                match caught(asked).await {
                    Err(panic) => {
                        context.problem(format!("{}: {panic}", what()));
                        break;
                    }
                    Ok(result) => {
                        let is_lost = matches!(operation, Operation::Get(_))
                            && subject.exists
                            && answer.is_garbage
                            && matches!(&result, Err(error) if error.kind == ErrorKind::NotFound);
                        context.demand(!(is_lost && proxy.hit()), || {
                            format!("{}: expected another error than NotFound, seen {}", what(), seen(&result))
                        });
                    }
                }
                if is_create {
                    for one in context.own(&direct, &context.spec(2)).await? {
                        context.remove(&direct, &one).await?;
                    }
                }
                // It needs no more answers than that.
                if !proxy.hit() {
                    most = turns;
                    break;
                }
            }
        }
    }
    Ok(())
}
