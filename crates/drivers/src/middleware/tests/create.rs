//! What the layer does around `create`.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_id_of_a_failed_create_is_kept() {
    let script = Script::new([]);
    let partial = || Fail(Error::new(ErrorKind::Unavailable, "no start").after("i-1"));
    let session = session(&script, &[], [partial(), Hang, fail(ErrorKind::Forbidden)]).await;
    let error = session.instances().unwrap().create(&spec()).await.unwrap_err();
    assert_eq!((error.kind, error.instance.as_deref()), (ErrorKind::Forbidden, Some("i-1")));
    script.steps.lock().unwrap().extend([partial(), Hang, Hang]);
    let error = session.instances().unwrap().create(&spec()).await.unwrap_err();
    assert_eq!((error.kind, error.instance.as_deref()), (ErrorKind::Timeout, Some("i-1")));
    script.steps.lock().unwrap().extend([partial()]);
    assert_eq!(session.instances().unwrap().create(&spec()).await.unwrap().id, "i-1");
}

#[tokio::test(start_paused = true)]
async fn what_no_driver_can_make_never_reaches_one() {
    let script = Script::new([]);
    let session = session(&script, &[], []).await;
    let own = BTreeMap::from([(Marks::SPEC.to_owned(), String::new())]);
    for (field, spec) in [
        ("key", InstanceSpec { key: String::new(), ..spec() }),
        ("key", InstanceSpec { key: " \t".to_owned(), ..spec() }),
        ("key", InstanceSpec { key: "a\u{1b}b".to_owned(), ..spec() }),
        ("key", InstanceSpec { key: "é".repeat(254), ..spec() }),
        ("name", InstanceSpec { name: String::new(), ..spec() }),
        ("labels", InstanceSpec { labels: own, ..spec() }),
    ] {
        let error = session.instances().unwrap().create(&spec).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument(field.to_owned()), "{error}");
    }
    assert!(script.names().is_empty());
    let key = "é".repeat(253);
    assert!(session.instances().unwrap().create(&InstanceSpec { key, ..spec() }).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_instance_of_another_cluster_is_refused() {
    let script = Script::new([]);
    let session = session(&script, &[], []).await;
    let create = async |wanted: &str, has: Option<&str>| {
        let marks = Marks { owner: Some("o".to_owned()), cluster: has.map(str::to_owned) };
        *script.other.lock().unwrap() = Some(Instance { marks, ..instance("i-1", "n", "o") });
        session.instances().unwrap().create(&InstanceSpec { cluster: wanted.to_owned(), ..spec() }).await
    };
    for (has, words) in [
        (Some("A"), "\"i-1\" of the key \"o\" belongs to the cluster \"A\", and was to belong to the cluster \"B\""),
        (None, "\"i-1\" of the key \"o\" has no ccm-operator.dev/cluster, and was to belong to the cluster \"B\""),
    ] {
        let error = create("B", has).await.unwrap_err();
        assert!(error.message.contains(words), "{error}");
        assert_eq!((error.kind, error.instance), (ErrorKind::AlreadyExists, None), "nothing was made");
    }
    for (wanted, has) in [("B", Some("B")), ("", Some("A")), ("", None)] {
        assert_eq!(create(wanted, has).await.unwrap().id, "i-1");
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_was_made_before_the_driver_hung_is_known() {
    let script = Script::new([]);
    let session = session(&script, &[], []).await;
    let create = async |steps: Vec<Step>, listed: &[Instance]| {
        *script.listed.lock().unwrap() = listed.to_vec();
        script.calls.lock().unwrap().truncate(1);
        script.steps.lock().unwrap().extend(steps);
        let error = session.instances().unwrap().create(&spec()).await.unwrap_err();
        script.steps.lock().unwrap().clear();
        (error.kind, error.instance, script.names().last().cloned().unwrap())
    };
    let (made, other) = (instance("i-7", "n", "o"), instance("i-8", "m", "p"));
    let found = |kind| (kind, Some("i-7".to_owned()), "list".to_owned());
    let hangs = || vec![Hang, Hang, Hang];
    // A driver that knows no filter lists others, too.
    assert_eq!(create(hangs(), &[other.clone(), made.clone()]).await, found(ErrorKind::Timeout));
    let fails = vec![fail(ErrorKind::Internal)];
    assert_eq!(create(fails, std::slice::from_ref(&made)).await, found(ErrorKind::Internal));
    let marks = Marks { cluster: Some("another".to_owned()), ..made.marks.clone() };
    let of_cluster = Instance { marks, ..made.clone() };
    for listed in
        [vec![other], vec![of_cluster], vec![instance("i-7", "m", "o")], vec![made.clone(), instance("i-9", "n", "o")]]
    {
        assert_eq!(create(hangs(), &listed).await, (ErrorKind::Timeout, None, "list".to_owned()));
    }
    let mut no_list = hangs();
    no_list.extend([fail(ErrorKind::Unavailable)]);
    let listed = std::slice::from_ref(&made);
    assert_eq!(create(no_list, listed).await, (ErrorKind::Timeout, None, "list".to_owned()));
    let refused = vec![fail(ErrorKind::Forbidden)];
    assert_eq!(create(refused, listed).await, (ErrorKind::Forbidden, None, "create n".to_owned()), "it made nothing");
}
