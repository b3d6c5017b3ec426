//! Content negotiation of metrics, by the `Accept` header (RFC 9110, 12.5.1).
//!
//! Key decision: the default is Prometheus' text format, which `promtool` and all scrapers
//! understand. A client gets OpenMetrics only if it prefers that by name, as with Prometheus'
//! official client libraries.

/// A text format for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus' text format, version 0.0.4.
    Text,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The value of the `Content-Type` header.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that a client prefers by its `Accept` headers; the text format without a
    /// preference.
    pub(crate) fn preferred<'a>(accept: impl IntoIterator<Item = &'a str>) -> Format {
        let ranges: Vec<Range<'_>> = accept
            .into_iter()
            .flat_map(|header| header.split(','))
            .filter_map(Range::parse)
            .collect();
        let [text, open_metrics] =
            [Format::Text, Format::OpenMetrics].map(|format| format.quality(&ranges));
        if open_metrics > text { Format::OpenMetrics } else { Format::Text }
    }

    /// The quality value of a format: that of the most specific range that includes it.
    fn quality(self, ranges: &[Range<'_>]) -> f32 {
        let including = ranges.iter().filter_map(|range| Some((range.specificity(self)?, range)));
        including
            .max_by_key(|(specificity, _)| *specificity)
            .map_or(0.0, |(_, range)| range.quality)
    }

    fn media_type(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Format::Text => ("text", "plain", "0.0.4"),
            Format::OpenMetrics => ("application", "openmetrics-text", "1.0.0"),
        }
    }
}

/// A media range of an `Accept` header.
struct Range<'a> {
    kind: &'a str,
    subtype: &'a str,
    version: Option<&'a str>,
    quality: f32,
}

impl<'a> Range<'a> {
    /// Parses a range; `None` for a malformed one, which is ignored.
    fn parse(text: &'a str) -> Option<Range<'a>> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let mut range = Range { kind, subtype, version: None, quality: 1.0 };
        for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
            match name {
                name if name.eq_ignore_ascii_case("q") => {
                    range.quality = value.parse().ok().filter(|q| (0.0..=1.0).contains(q))?;
                }
                name if name.eq_ignore_ascii_case("version") => {
                    range.version = Some(value.trim_matches('"'));
                }
                _ => {}
            }
        }
        Some(range)
    }

    /// How specific the range is for a format; `None` when it does not include it.
    fn specificity(&self, format: Format) -> Option<u8> {
        let (kind, subtype, version) = format.media_type();
        let is_kind = self.kind.eq_ignore_ascii_case(kind);
        let is_subtype = self.subtype.eq_ignore_ascii_case(subtype);
        match (self.kind, self.subtype, self.version) {
            ("*", "*", _) => Some(0),
            (_, "*", _) if is_kind => Some(1),
            (_, _, None) if is_kind && is_subtype => Some(2),
            (_, _, Some(wanted)) if is_kind && is_subtype && wanted == version => Some(3),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_preference_gets_the_text_format() {
        for accept in ["", "*/*", "text/plain", "text/plain; version=0.0.4", "text/html,*/*;q=0.8"]
        {
            assert_eq!(Format::preferred([accept]), Format::Text, "{accept}");
        }
        assert_eq!(Format::preferred([]), Format::Text);
        assert_eq!(Format::preferred(["image/png"]), Format::Text);
    }

    #[test]
    fn prometheus_gets_openmetrics_as_it_asks_for() {
        for accept in [
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
             version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/\
             openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;\
             q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
        ] {
            assert_eq!(Format::preferred([accept]), Format::OpenMetrics, "{accept}");
        }
    }

    #[test]
    fn the_higher_quality_decides_and_the_most_specific_range_says_which_that_is() {
        let text = "text/plain;q=0.9, application/openmetrics-text;q=0.8";
        let open_metrics = "Application/OpenMetrics-Text ; Q=0.9 , text/plain;q=0.8";
        assert_eq!(Format::preferred([text]), Format::Text);
        assert_eq!(Format::preferred([open_metrics]), Format::OpenMetrics);
        assert_eq!(Format::preferred(text.split(", ")), Format::Text, "in two headers");
        let refused = "application/openmetrics-text;q=0, */*";
        assert_eq!(Format::preferred([refused]), Format::Text);
        assert_eq!(Format::preferred(["text/plain;q=0, */*;q=0.1"]), Format::OpenMetrics);
        assert_eq!(Format::preferred(["text/*;q=0.2, */*;q=0.1"]), Format::Text);
    }

    #[test]
    fn other_versions_and_malformed_ranges_have_no_say() {
        for accept in [
            "application/openmetrics-text;version=2.0.0,text/plain;q=0.1",
            "application/openmetrics-text;q=nan,text/plain;q=0.1",
            "application/openmetrics-text;q=7,text/plain;q=0.1",
            "openmetrics-text",
            ";;;,,,=",
        ] {
            assert_eq!(Format::preferred([accept]), Format::Text, "{accept}");
        }
    }
}
