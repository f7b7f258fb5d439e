//! Values of flags and settings as programs in Go parse them (pure).

/// A second in nanoseconds.
const SECOND: i128 = 1_000_000_000;

/// Parses a number as Go's `strconv.ParseInt` with base 0: decimal, or with the prefix of another base, also `0`.
pub fn integer(text: &str) -> Option<i64> {
    let lower = text.strip_prefix(['+', '-']).unwrap_or(text).to_ascii_lowercase();
    let (digits, radix) = [("0x", 16), ("0o", 8), ("0b", 2), ("0", 8)]
        .into_iter()
        .find_map(|(prefix, radix)| Some((lower.strip_prefix(prefix).filter(|digits| !digits.is_empty())?, radix)))
        .unwrap_or((lower.as_str(), 10));
    let is_misplaced = digits.ends_with('_') || digits.contains("__") || (radix == 10 && digits.starts_with('_'));
    if is_misplaced || digits.contains(['+', '-']) {
        return None;
    }
    let magnitude = i128::from_str_radix(&digits.replace('_', ""), radix).ok()?;
    i64::try_from(if text.starts_with('-') { -magnitude } else { magnitude }).ok()
}

/// Parses a number as Go's `strconv.ParseFloat`, but for hexadecimal numbers, which nobody gives.
pub fn float(text: &str) -> Option<f32> {
    if text.starts_with('_') || text.ends_with('_') || text.contains("__") {
        return None;
    }
    let number: f32 = text.replace('_', "").parse().ok()?;
    // Rust reads a number that is too large as infinite. Only the names of infinity have this letter.
    (!number.is_infinite() || text.contains(['n', 'N'])).then_some(number)
}

/// Parses a duration as Go's `time.ParseDuration`, in nanoseconds.
pub fn duration(text: &str) -> Option<i64> {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let is_of_number = |one: char| one.is_ascii_digit() || one == '.';
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|one: char| !is_of_number(one)).unwrap_or(rest.len()));
        let (unit, after) = after.split_at(after.find(is_of_number).unwrap_or(after.len()));
        let nanoseconds: i128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND,
            "m" => 60 * SECOND,
            "h" => 3600 * SECOND,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') {
            return None;
        }
        // Further digits are less than a nanosecond even in hours.
        let fraction = &fraction[..fraction.len().min(15)];
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
        total = total.checked_add(digits.checked_mul(nanoseconds)? / scale)?;
        rest = after;
    }
    i64::try_from(if text.starts_with('-') { -total } else { total }).ok()
}

/// Whether Go's `encoding/csv` accepts a line.
pub fn is_csv(text: &str) -> bool {
    let mut rest = Some(text);
    while let Some(line) = rest {
        let Some(mut quoted) = line.strip_prefix('"') else {
            let (item, others) = line.split_once(',').map_or((line, None), |(item, others)| (item, Some(others)));
            if item.contains('"') {
                return false;
            }
            rest = others;
            continue;
        };
        let after = loop {
            let Some((_, after)) = quoted.split_once('"') else { return false };
            // Two quotation marks stand for one.
            match after.strip_prefix('"') {
                Some(more) => quoted = more,
                None => break after,
            }
        };
        rest = after.strip_prefix(',');
        if rest.is_none() && !after.is_empty() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, nanoseconds) in [
            ("5s", 5_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("-2ms", -2_000_000),
            ("+.5us", 500),
            ("0", 0),
            ("3\u{b5}s", 3_000),
            ("0.1s", 100_000_000),
            ("1h1m1s1ms1us1ns", 3_661_001_001_001),
        ] {
            assert_eq!(duration(text), Some(nanoseconds), "{text}");
        }
        for text in ["", "+", "5", "s", "1.2.3s", "5 s", "1d", ".s", "9999999h"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_and_lists_are_parsed_as_in_go() {
        for (text, number) in
            [("7", 7), ("-0x1F", -31), ("0o17", 15), ("017", 15), ("0b11", 3), ("1_000", 1000), ("0", 0)]
        {
            assert_eq!(integer(text), Some(number), "{text}");
        }
        for text in ["", "abc", "1.5", "--1", "1__0", "_1", "1_", "0x", "9223372036854775808"] {
            assert_eq!(integer(text), None, "{text}");
        }
        assert!(float("1e3").is_some() && float("Inf").is_some() && float("1e99").is_none() && float("abc").is_none());
        assert!(is_csv("a,\"b,c\",\"d\"\"e\"") && !is_csv("a,b\"c\"") && !is_csv("\"a") && is_csv(""));
    }
}
