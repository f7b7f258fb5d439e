use super::*;

fn read(source: &str) -> Vec<(String, String, Option<String>, usize)> {
    let document = Document::parse(source).unwrap_or_else(|error| panic!("{source:?}: {error}"));
    document
        .entries()
        .map(|Placed { header, line, entry }| {
            let section =
                if header.sub.is_empty() { header.name.clone() } else { format!("{} {}", header.name, header.sub) };
            (section, entry.key.clone(), entry.value.clone(), line)
        })
        .collect()
}

fn value(source: &str) -> String {
    read(&format!("[A]\nk{source}"))[0].2.clone().unwrap()
}

#[test]
fn values_are_read_as_gcfg_reads_them() {
    let cases = [
        (" = a b ", "a b"),
        ("=a=b", "a=b"),
        ("= \"a;b\" # c", "a;b"),
        ("= a\"b c \"d", "ab c d"),
        ("= a;b", "a"),
        ("=", ""),
        ("= # c", ""),
        ("= \"\"", ""),
        ("= \" a \"", " a "),
        (r#"= "a\\b\"c\nd\te""#, "a\\b\"c\nd\te"),
        (r#"= \"a\""#, "\"a\""),
        ("= a \\\n  b", "a   b"),
        ("= a \\\r\n  b\r\n", "a   b"),
        ("= a\\\n", "a"),
        ("= a\rb\r\n", "ab"),
        ("= \"a\rb\"\r\n", "ab"),
        ("= {{ [x] }}", "{{ [x] }}"),
        ("= größe", "größe"),
    ];
    for (source, expected) in cases {
        assert_eq!(value(source), expected, "{source:?}");
    }
}

#[test]
fn sections_and_keys_have_line_numbers() {
    let source = "\u{feff}; top\r\n\r\n [ Global ] # c\r\n\tKey-1 = v ; c\r\nblank\r\n[Override \"a\\\"]b\"]\r\nk=\\\r\nv\r\nk = w";
    let expected = [
        ("Global", "Key-1", Some("v"), 4),
        ("Global", "blank", None, 5),
        ("Override a\"]b", "k", Some("v"), 7),
        ("Override a\"]b", "k", Some("w"), 9),
    ];
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(section, key, value, line)| (section.to_owned(), key.to_owned(), value.map(str::to_owned), line))
        .collect();
    assert_eq!(read(source), expected);
}

#[test]
fn texts_that_gcfg_refuses_are_errors_with_a_line() {
    let cases = [
        ("k = v", 1, "first section"),
        ("\n]", 2, "first section"),
        ("[A]\nk v", 2, "`=` is missing after the key"),
        ("[A]\nk_1 = v", 2, "'_'"),
        ("[A]\n1k = v", 2, "'1'"),
        ("[A]\n= v", 2, "'='"),
        ("[A", 1, "`]` is missing"),
        ("[A.b]", 1, "`]` is missing"),
        ("[A \"b\" \"c\"]", 1, "`]` is missing"),
        ("[]", 1, "name is missing"),
        ("[\"b\"]", 1, "name is missing"),
        ("[A \"\"]", 1, "is empty"),
        ("[A \"b]\n", 1, "closing quote"),
        ("[A \"\\n\"]", 1, "is valid before"),
        ("[A] k = v", 1, "last on its line"),
        ("[A # ]\n", 1, "`]` is missing"),
        ("[A]\nk = \"v\nl = w", 2, "closing quote"),
        ("[A]\nk = v\\w", 2, "end of a line only"),
        ("[A]\nk = v\\", 2, "end of a line only"),
        ("[A]\nk = \"\\d\"", 2, "is valid before"),
        ("[A]\nk = \"a\\\nb\"", 2, "is valid before"),
        ("[A]\n\n; \0", 3, "NUL"),
        ("\u{feff}\u{feff}[A]", 1, "first section"),
    ];
    for (source, line, words) in cases {
        let error = Document::parse(source).err().unwrap_or_else(|| panic!("{source:?} was read"));
        assert_eq!(error.place.map(|place| place.line), Some(line), "{source:?}: {error}");
        assert!(error.message.contains(words), "{source:?}: {error}");
    }
    let error = Document::parse("[A]\nkey = v \nk v").unwrap_err().of("cloud.conf");
    assert!(error.starts_with("cloud.conf:3:3: `=` is missing after the key"), "{error}");
}

#[test]
fn an_error_does_not_repeat_a_value() {
    for source in [
        "[A]\npassword =\n  hunter2 x",
        "[A]\npassword hunter2",
        "[A]\npassword = \"hunter2",
        "[A]\npassword = hun\\ter2",
        "password = hunter2",
    ] {
        assert!(!Document::parse(source).unwrap_err().to_string().contains("hun"), "{source}");
    }
}

fn edited(source: &str, edit: impl FnOnce(&mut Document)) -> String {
    let mut document = Document::parse(source).unwrap();
    edit(&mut document);
    document.finish().0
}

#[test]
fn a_value_is_replaced_in_place() {
    let cases = [
        ("[a]\nK = v ; c\nl = w\n", "[a]\nK = x ; c\nl = w\n"),
        ("[a]\nk=\"v\"\n", "[a]\nk=x\n"),
        ("[a]\nk =   ; c\n", "[a]\nk = x   ; c\n"),
        ("[a]\nk=\n", "[a]\nk=x\n"),
        ("[a]\n k # c\n", "[a]\n k = x # c\n"),
        ("[a]\nk = v \\\n w\nl = m", "[a]\nk = x\nl = m"),
        ("[A]\nk = u\n[b]\nk = u\n[a]\nk = v\n", "[A]\n[b]\nk = u\n[a]\nk = x\n"),
        ("[a \"s\"]\nk = v\n[a]\n", "[a \"s\"]\nk = v\n[a]\nk = x\n"),
    ];
    for (source, expected) in cases {
        assert_eq!(edited(source, |document| document.set("", "A", "k", "x")), expected, "{source:?}");
    }
}

#[test]
fn a_key_is_added_below_the_last_one_of_its_section() {
    let cases = [
        ("", "[A]\nk = x\n"),
        ("; c", "; c\n\n[A]\nk = x\n"),
        ("[b]\n\n", "[b]\n\n[A]\nk = x\n"),
        ("[a]", "[a]\nk = x\n"),
        ("[a]\n  l=w", "[a]\n  l=w\n  k=x\n"),
        ("[a]\n\tl = w ; c\n\n# of b\n[b]\n", "[a]\n\tl = w ; c\n\tk = x\n\n# of b\n[b]\n"),
        ("[a]\r\nl = w\r\n", "[a]\r\nl = w\r\nk = x\r\n"),
        ("[a]\nl = w \\\n", "[a]\nl = w \\\n\nk = x\n"),
        ("[a]\nl\n", "[a]\nl\nk = x\n"),
        ("[a]\nl =\n", "[a]\nl =\nk = x\n"),
    ];
    for (source, expected) in cases {
        let text = edited(source, |document| document.set("", "A", "k", "x"));
        assert_eq!(text, expected, "{source:?}");
        assert!(read(&text).iter().any(|(_, key, value, _)| key == "k" && value.as_deref() == Some("x")), "{source:?}");
    }
    assert_eq!(
        edited("[a]\nk\n", |document| {
            document.set("", "a", "k", "x");
            document.set("", "a", "l", "y");
        }),
        "[a]\nk = x\nl = y\n"
    );
}

#[test]
fn a_blank_value_counts_as_unset() {
    for (source, expected) in [("k = v", "k = v"), ("k", "k = x"), ("k =", "k = x"), ("k = \" \"", "k = x")] {
        let text = edited(&format!("[A]\n{source}\n"), |document| document.set_unless_set("", "A", "k", "x"));
        assert_eq!(text, format!("[A]\n{expected}\n"));
    }
}

#[test]
fn keys_and_sections_are_removed_with_their_lines_only() {
    let source =
        "; top\n[A]\n; of k\nk = v ; c\nl = w\nK = \\\n u\n[B]\n; of m\nm = n\n\n; of A\n[a]\nk\n[b \"s\"]\nm = n";
    assert_eq!(
        edited(source, |document| document.drop_key("", "A", "k")),
        "; top\n[A]\n; of k\nl = w\n[B]\n; of m\nm = n\n\n; of A\n[a]\n[b \"s\"]\nm = n"
    );
    let mut document = Document::parse(source).unwrap();
    document.drop_section("rule", "b");
    let (text, changes) = document.finish();
    assert_eq!(text, "; top\n[A]\n; of k\nk = v ; c\nl = w\nK = \\\n u\n\n; of A\n[a]\nk\n[b \"s\"]\nm = n");
    let change =
        |key: &str, before: &str| Change { rule: "rule", key: key.into(), before: Some(before.into()), after: None };
    assert_eq!(changes, [change("[b]", ""), change("[b] m", "n")]);
}
