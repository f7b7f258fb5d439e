use super::*;

fn versions(rule: VersionRule, tags: &[(u32, &str)]) -> Versions {
    let tags = tags.iter().map(|(minor, tag)| (Minor(*minor), Tag { name: (*tag).to_owned(), digest: None })).collect();
    Versions { rule, tags, as_of: "2026-08-31".into(), verified: Vec::new(), broken: None }
}

#[test]
fn the_tag_is_that_of_the_minor_version_or_the_newest_below() {
    let versions = versions(VersionRule::SameMinor, &[(33, "v1.33.4"), (34, "v1.34.3"), (36, "v1.36.1")]);
    let tag = |minor| versions.choose(Minor(minor)).map(|choice| (choice.tag, choice.problem.map(|(word, _)| word)));
    assert_eq!(tag(34), Some(("v1.34.3".into(), None)));
    assert_eq!(tag(35), Some(("v1.34.3".into(), Some(NO_TAG_FOR_MINOR))));
    assert_eq!(tag(40), Some(("v1.36.1".into(), Some(NO_TAG_FOR_MINOR))));
    assert_eq!(tag(32), Some(("v1.33.4".into(), Some(NO_TAG_FOR_MINOR))), "one above, as nothing is below");
    assert_eq!(tag(31), None);
    let choice = versions.choose(Minor(35)).unwrap();
    assert_eq!(choice.reason, "the nearest tag, for Kubernetes 1.34");
    assert_eq!(choice.problem.unwrap().1, "there is no tag for Kubernetes 1.35 as of 2026-08-31: v1.34.3 is for 1.34");
}

#[test]
fn a_version_that_is_asked_for_may_be_one_minor_above() {
    let problem = |rule, tag| versions(rule, &[]).asked(tag, Minor(34), false).problem.map(|(word, _)| word);
    assert_eq!(problem(VersionRule::SameMinor, "v1.35.2"), None);
    assert_eq!(problem(VersionRule::SameMinor, "v1.30.0"), None);
    assert_eq!(problem(VersionRule::SameMinor, "v1.36.1"), Some(SKEW_TOO_LARGE));
    assert_eq!(problem(VersionRule::SameMinor, "0.35.4"), None);
    assert_eq!(problem(VersionRule::SameMinor, "v0.36.2"), Some(SKEW_TOO_LARGE));
    assert_eq!(problem(VersionRule::SameMinor, "custom"), None);
    assert_eq!(problem(VersionRule::MajorIsMinor, "v35.1.3"), None);
    assert_eq!(problem(VersionRule::MajorIsMinor, "v36.3.8"), Some(SKEW_TOO_LARGE));
    assert_eq!(problem(VersionRule::OneLine, "v9.9.9"), None);
}

#[test]
fn a_version_that_the_table_does_not_have_may_be_a_typo() {
    let said = |versions: &Versions, tag: &str| match versions.asked(tag, Minor(35), true).problem {
        Some((UNKNOWN_VERSION, text)) => {
            let begin =
                format!("{tag} is not among the tags that this version of the operator knows, as of 2026-08-31: ");
            text.strip_prefix(&begin).unwrap_or_else(|| panic!("{text}")).to_owned()
        }
        other => format!("{other:?}"),
    };
    let same = versions(VersionRule::SameMinor, &[(34, "v1.34.3"), (35, "v1.35.2"), (37, "v1.37.0")]);
    for (tag, expected) in [
        ("v1.35.2", "None"),
        ("v1.34.3", "None"),
        ("1.35.2", "did you mean v1.35.2?"),
        ("1.35.0", "did you mean v1.35.0? The nearest one that it knows is v1.35.2"),
        ("v1.35.9", "the nearest one is v1.35.2"),
        ("v1.34.9", "the nearest one is v1.34.3"),
        ("v1.33.0", "the nearest one is v1.35.2"),
        ("stable", "the nearest one is v1.35.2"),
        (
            "v1.53.2",
            "the nearest one is v1.35.2; v1.53.2 is for Kubernetes 1.53, more than one minor version above 1.35",
        ),
    ] {
        assert_eq!(said(&same, tag), expected, "{tag}");
    }
    let known = same.asked("v1.37.0", Minor(35), true).problem.map(|(word, _)| word);
    assert_eq!(known, Some(SKEW_TOO_LARGE));
    let line = versions(VersionRule::OneLine, &[(34, "1.2.0"), (35, "1.3.0")]);
    assert_eq!(said(&line, "v1.2.0"), "did you mean 1.2.0?");
    assert_eq!(said(&line, "v1.2.9"), "did you mean 1.2.9? The nearest one that it knows is 1.3.0");
    let verified = Versions { verified: vec!["1.2.9".into()], ..line };
    assert_eq!(said(&verified, "1.2.9"), "None");
    assert_eq!(verified.asked("1.1.0", Minor(35), false).problem, None);
    let early = verified.asked("1.1.0", Minor(30), true).problem.map(|(word, _)| word);
    assert_eq!(early, Some(UNKNOWN_VERSION), "a cluster that is older than the table");
}
/// Two digests.
const DIGESTS: [&str; 2] = [
    "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",
    "sha256:0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b",
];

fn read(tags: &str) -> Result<Versions, String> {
    let text = format!("rule: OneLine\ntags:\n{tags}asOf: 2026-08-31\n");
    crate::text::yaml::from_str(&text).map_err(|error| error.to_string())
}

#[test]
fn a_tag_may_have_a_digest() {
    let [digest, _] = DIGESTS;
    let versions = read(&format!("  \"1.34\": v1\n  \"1.35\": {{tag: v2, digest: \"{digest}\"}}\n")).unwrap();
    let chosen = |minor| versions.choose(Minor(minor)).map(|choice| (choice.tag, choice.digest));
    assert_eq!(chosen(34), Some(("v1".into(), None)));
    assert_eq!(chosen(35), Some(("v2".into(), Some(digest.into()))));
    assert_eq!(chosen(36), Some(("v2".into(), Some(digest.into()))), "the nearest one");
    let asked = |tag| versions.asked(tag, Minor(34), true).digest;
    assert_eq!([asked("v2"), asked("v1"), asked("v3")], [Some(digest.to_owned()), None, None]);
    assert_eq!(versions.bad_digest(), None);
    for (tag, expected) in [
        ("{tag: v2}", "missing field `digest`"),
        ("{digest: a}", "missing field `tag`"),
        ("{tag: v2, digest: a, note: b}", "unknown field `note`"),
        ("[v2]", "a tag, or {tag: TAG, digest: DIGEST}"),
        ("{tag: null, digest: a}", ""),
    ] {
        let error = read(&format!("  \"1.35\": {tag}\n")).unwrap_err();
        assert!(error.contains(expected), "{tag}: {error}");
    }
}

#[test]
fn a_tag_has_one_digest_and_a_whole_one() {
    let [one, two] = DIGESTS.map(|digest| format!("{{tag: v1, digest: \"{digest}\"}}"));
    let short = "{tag: v1, digest: \"sha256:0a\"}".to_owned();
    let upper = one.replace("0a0a", "0A0A");
    for (first, second, expected) in [
        (&one, &one, None),
        (&one, &two, Some((35, "another digest above"))),
        (&one, &"v1".to_owned(), Some((35, "another digest above"))),
        (&"v1".to_owned(), &one, Some((35, "another digest above"))),
        (&short, &one, Some((34, "is no digest"))),
        (&upper, &one, Some((34, "is no digest"))),
    ] {
        let versions = read(&format!("  \"1.34\": {first}\n  \"1.35\": {second}\n")).unwrap();
        let found = versions.bad_digest();
        assert_eq!(found.as_ref().map(|(minor, _)| minor.0), expected.map(|(minor, _)| minor), "{first} {second}");
        assert!(expected.is_none_or(|(_, words)| found.unwrap().1.contains(words)), "{first} {second}");
    }
}

#[test]
fn the_work_for_a_table_grows_with_its_length() {
    let steps = |tags: usize| {
        let tag = |n: usize| {
            (Minor(u32::try_from(n).unwrap()), Tag { name: format!("v{n}"), digest: Some(DIGESTS[0].into()) })
        };
        let table = Versions { tags: (0..tags).map(tag).collect(), ..versions(VersionRule::OneLine, &[]) };
        work::of(|| assert_eq!(table.bad_digest(), None))
    };
    assert_eq!((steps(100), steps(1_000)), (100, 1_000));
    let table = versions(VersionRule::OneLine, &[(34, "v1"), (35, "v2")]);
    let digests = table.digests();
    assert!(["v1", "v2", "v3"].iter().all(|tag| digests.get(tag).copied().flatten() == table.digest_of(tag)));
}

#[test]
fn a_version_that_must_not_run_is_named_whether_it_is_known_or_not() {
    let broken = Broken { below: "v1.30.1".into(), because: "the cloud dropped a field".into() };
    let versions = Versions { broken: Some(broken), ..versions(VersionRule::OneLine, &[(35, "v1.35.0")]) };
    let word = |tag: &str| versions.asked(tag, Minor(35), true).problem.map(|(word, _)| word);
    for tag in ["v1.30.0", "1.30.0", "v1.9.9"] {
        assert_eq!(word(tag), Some(VERSION_BROKEN), "{tag}");
    }
    for tag in ["v1.30.1", "v1.31.0", "v2.0.0", "custom", "v1.30.0-rc.1", "v1", "v1.30"] {
        assert_ne!(word(tag), Some(VERSION_BROKEN), "{tag}");
    }
    assert_eq!(versions.asked("v1.30.0", Minor(35), false).problem, None, "another repository has images of its own");
    let with = |below: &str| {
        let broken = Broken { below: below.into(), because: String::new() };
        Versions { broken: Some(broken), ..versions.clone() }.bad_broken().map(|(field, _)| field)
    };
    assert_eq!((with("v1.30.1"), with("1.30.x"), with("v1.36.0")), (None, Some("broken/below"), Some("tags")));
    let problem = versions.asked("v1.30.0", Minor(35), true).problem.unwrap().1;
    assert_eq!(problem, "v1.30.0 must not run: the cloud dropped a field; the first version without this is v1.30.1");
}
