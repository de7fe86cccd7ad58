//! A result of `aerostat ctl` for people: one line for each value.

use std::fmt::Write;

use serde_json::Value;
use vmm::config::units::format_size;

/// The values of `result`, each with its key; keys of inner objects behind those
/// of the outer ones.
pub(crate) fn table(result: &Value) -> String {
    let mut rows = Vec::new();
    collect(String::new(), result, &mut rows);
    let width = rows.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (key, value) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{key:<width$}  {value}");
    }
    text
}

fn collect(key: String, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Object(entries) => {
            for (name, inner) in entries {
                let key = match key.is_empty() {
                    true => name.clone(),
                    false => format!("{key}.{name}"),
                };
                collect(key, inner, rows);
            }
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| shown("", item)).collect();
            rows.push((key, items.join(" ")));
        }
        _ => {
            let value = shown(&key, value);
            rows.push((key, value));
        }
    }
}

fn shown(key: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_u64().filter(|_| key.ends_with("_bytes")) {
            Some(bytes) if format_size(bytes) != bytes.to_string() => {
                format!("{bytes} ({})", format_size(bytes))
            }
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_value_has_its_line_and_sizes_are_readable() {
        let result = json!({
            "state": "running",
            "actual_bytes": 1_u64 << 28,
            "odd_bytes": 4097,
            "features": {"acknowledged": null, "offered": ["A", "B"]},
        });
        let expected = [
            "actual_bytes           268435456 (256M)",
            "features.acknowledged  -",
            "features.offered       A B",
            "odd_bytes              4097",
            "state                  running\n",
        ];
        assert_eq!(table(&result), expected.join("\n"));
        assert_eq!(table(&json!({})), "");
    }
}
