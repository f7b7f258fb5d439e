//! The JSON Schema of a [`ValueSource`], which is read by hand.

use super::*;

impl schemars::JsonSchema for ValueSource {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ValueSource".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Where the value of an argument or of an environment variable comes from.",
            "anyOf": [generator.subschema_for::<Fact>(), generator.subschema_for::<ValueFields>()],
        })
    }
}
