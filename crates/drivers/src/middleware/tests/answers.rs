//! Lists that cannot be right.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_list_with_an_empty_id_or_with_one_id_twice_is_an_error_of_the_driver() {
    let script = Script::new([]);
    let session = session(&script, &[], []).await;
    for (ids, problem) in [
        (&["a", "b", "a"][..], Some("the id \"a\" twice")),
        (&["a", ""], Some("an empty id")),
        (&["a", "b", "A"], None),
        (&[], None),
    ] {
        *script.ids.lock().unwrap() = Some(ids.iter().map(|id| (*id).to_owned()).collect());
        *script.listed.lock().unwrap() = ids.iter().map(|id| instance(id, "n", "o")).collect();
        let filter = Filter::default();
        for (what, result) in [
            ("regions", session.topology().regions().await.map(|all| all.len())),
            ("zones", session.topology().zones(None).await.map(|all| all.len())),
            ("images", session.inventory().unwrap().list(ResourceKind::Image, None).await.map(|all| all.len())),
            ("instances", session.instances().unwrap().list(&filter).await.map(|all| all.len())),
        ] {
            match (problem, result) {
                (None, Ok(count)) => assert_eq!(count, ids.len()),
                (Some(problem), Err(error)) => {
                    assert_eq!(error.kind, ErrorKind::Internal);
                    assert!(error.message.ends_with(&format!("a list of {what} that has {problem}")), "{error}");
                }
                (_, other) => panic!("{what} {ids:?}: {other:?}"),
            }
        }
    }
}
