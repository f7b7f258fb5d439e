//! Layouts that may contain a secret. This file imports nothing from the crate, because the laws in `tests/it` include
//! it as well.

use proptest::prelude::*;

/// Layouts with a key `KEY` and its value `ONE`, or `ONE` and `TWO`.
pub(crate) const YAML: &[&str] = &[
    "KEY: ONE",
    "KEY:   ONE   # a comment",
    "KEY:\n    ONE",
    "KEY:\n    # a comment\n    ONE\n    TWO",
    "KEY: ONE\n  TWO\n\n  ONE",
    "KEY: \"ONE\n    TWO\n    ONE\"",
    "KEY: 'ONE\n\n TWO'",
    "KEY: \"ONE\\n\\x41TWO\"",
    "KEY: |\n  ONE\n\n    TWO\n  ONE",
    "KEY: >-\n  ONE\n  TWO",
    "KEY: |2 # a comment\n    ONE\n  TWO",
    "KEY: &pw |\n  ONE",
    "KEY: !!str &pw\n  ONE",
    "KEY: !ONE",
    "KEY: &ONE",
    "KEY: !ONE\n  &TWO",
    "KEY:\n  a: x\n  b: !ONE",
    "KEY:\n- a\n- b: &ONE",
    "KEY:\n  a:\n    ? b\n    : !ONE",
    "KEY: abc #ONE",
    "KEY: \"\" # ONE",
    "a: {KEY: x #ONE\n }",
    "KEY: !ONE {}",
    "KEY: [ONE, \"TWO\"]",
    "KEY:\n- ONE\n- TWO",
    "KEY:\n  - a: ONE\n    b: [TWO]",
    "KEY: {a: ONE, b: {c: TWO}}",
    "'KEY': ONE",
    "\"KEY\": |\n  ONE",
    "\"KEY\": ONE,TWO",
    "\"KEY\" : {a: ONE,\n TWO: b}",
    "? KEY\n: ONE",
    "? KEY # a comment\n# another\n: - ONE\n  - TWO",
    "? \"KEY\"\n: |\n  ONE",
    "a: {user: me, KEY: ONE}",
    "a: {user: me,\n  KEY:\n   ONE, z: [],\n  b: {KEY: TWO}}",
    "a: {KEY: !ONE, b: c}",
    "a: [{KEY: ONE}, KEY: TWO]",
    "a:\n- KEY: ONE\n- b: c\n  KEY: TWO",
    "a:\n- KEY: !ONE\n- b: c",
    "a: &p ONE\nKEY: *p",
    "a: {b: &p ONE}\nKEY: [*p]",
    "a: &p {b: ONE, c: &q TWO}\nKEY: *p",
    "a: &q ONE\nb: &p [*q]\nKEY: {x: *p}",
    "&p ONE: a\nKEY: *p",
    "&k KEY: a\nb: {*k : ONE}",
    "z: {a: &p ONE, KEY: *p}",
    "a: &m {KEY: ONE}\nb:\n  <<: *m\n  KEY: TWO",
    "a:\n  <<: {KEY: ONE}",
    "# KEY: ONE",
    "a: b # KEY = ONE",
    "a: # \"KEY\": ONE\n  b",
    "#KEY: |\n#  ONE\n#\n#  TWO",
    "# KEY: \"ONE\n#   TWO\"",
    "# - KEY: ONE\n#     TWO",
    "# {a: b, KEY: [ONE,\n# TWO]}",
    "# KEY:\n#   - ONE\n#   - TWO",
    "# ? KEY\n# : ONE",
    "a: \"KEY=ONE\"",
    "a: [--KEY, b, --KEY=ONE, 'c KEY: TWO']",
    "a: https://example.com/?KEY=ONE&b=c#d",
    "a: https://user:ONE@example.com/",
    "a: |\n  KEY: ONE\n  KEY:\n    TWO\n  b: c",
    "a: 1\n---\nKEY: ONE\n---\n[KEY: TWO]",
    "a: 1\n...\nKEY: ONE\nb: [\n",
];

pub(crate) const INI: &[&str] = &[
    "KEY = ONE",
    "KEY=ONE",
    "KEY = a#ONE",
    "KEY = \"a\";ONE",
    "KEY =\nONE",
    "KEY\nONE\nTWO",
    "\tKEY\t=\tONE TWO",
    "KEY = \"ONE;TWO\" ; a comment",
    "KEY = ONE\\\n  TWO\\\n ONE",
    "KEY = \"ONE\\nTWO\" # KEY = ONE",
    "# KEY = ONE",
    ";KEY=ONE",
    "a = b ; KEY = ONE",
    "a = \"b\" #KEY: ONE",
    "# KEY = ONE \\\n#  TWO",
    "a = https://b/?c=d&KEY=ONE&e=f",
    "a = Server=x,KEY=ONE",
    "[sub \"KEY=ONE\"]",
];

pub(crate) const JSON: &[&str] = &[
    r#""KEY": "ONE""#,
    r#""KEY":"ONE\"TWO\\""#,
    "\"KEY\":\n\n  \"ONE\"",
    "\"KEY\"\n:\n\"ONE\"\n",
    "\"KEY\": [\n  \"ONE\",\n  {\"a\": \"TWO\"}\n]",
    r#""KEY": {"a": ["ONE"], "b": "TWO"}, "c": "d""#,
    r#""a": [{"b": {"KEY": "ONE"}}, "KEY: TWO"]"#,
    r#""a": "b\nKEY: ONE""#,
    r#""a": "\ud83d\ude00\t", "KEY": "ONE\ud83d""#,
];

/// The key of a secret.
pub(crate) fn key() -> impl Strategy<Value = String> {
    let keys = ["password", "aadClientSecret", "token", "trustee-password", "secret_id", "vcenter.example.com.apiKey"];
    prop::sample::select(keys.to_vec()).prop_map(str::to_owned)
}

/// A layout with a secret; its parts begin with `Zq`.
pub(crate) fn planted(layout: &str, key: &str, secret: &str) -> String {
    layout.replace("KEY", key).replace("ONE", &format!("Zq1{secret}")).replace("TWO", &format!("Zq2{secret}"))
}
