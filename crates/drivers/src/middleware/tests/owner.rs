//! Instances that others have made.

use super::*;

type Change = &'static str;
const CHANGES: [Change; 4] = ["delete", "start", "stop", "run"];

async fn change(session: &Session, what: Change) -> Result<()> {
    let instances = session.instances().unwrap();
    match what {
        "delete" => instances.delete("i-1").await,
        "start" => instances.start("i-1").await,
        "stop" => instances.stop("i-1").await,
        _ => session.run_command().unwrap().run("i-1", &[]).await.map(drop),
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_an_owner_is_not_changed() {
    for owner in [None, Some("")] {
        let script = Script::new([]);
        let session = session(&script, &[], []).await;
        let marks = Marks { owner: owner.map(str::to_owned), cluster: Some("c".to_owned()) };
        *script.other.lock().unwrap() = Some(Instance { marks, ..instance("i-1", "n", "o") });
        for what in CHANGES {
            let error = change(&session, what).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Forbidden);
            assert!(
                error.message.contains("\"i-1\": it has no ccm-operator.dev/owner, so others have made it"),
                "{error}"
            );
        }
        assert_eq!(script.names(), ["get i-1"; 4], "no change reaches the driver");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_is_only_deleted() {
    for what in CHANGES {
        let script = Script::new([]);
        let session = session(&script, &[], [fail(ErrorKind::NotFound)]).await;
        let result = change(&session, what).await;
        if what == "delete" {
            result.unwrap();
            assert_eq!(script.names(), ["get i-1", "delete i-1"]);
        } else {
            assert!(result.unwrap_err().is_not_found());
            assert_eq!(script.names(), ["get i-1"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_nothing_is_changed() {
    for what in CHANGES {
        let script = Script::new([]);
        let session = session(&script, &[], [fail(ErrorKind::Internal)]).await;
        assert_eq!(change(&session, what).await.unwrap_err().kind, ErrorKind::Internal);
        assert_eq!(script.names(), ["get i-1"]);
    }
    // A driver that answers about another instance.
    let script = Script::new([]);
    let session = session(&script, &[], []).await;
    *script.other.lock().unwrap() = Some(instance("i-10", "n", "o"));
    for what in CHANGES {
        assert_eq!(change(&session, what).await.unwrap_err().kind, ErrorKind::Internal);
    }
    assert_eq!(script.names(), ["get i-1"; 4]);
}
