//! AWS's partitions: separate clouds with names of their own.

/// Returns the end of the host names in a region.
pub(crate) fn dns_suffix(region: &str) -> &'static str {
    let is_in = |prefix: &str| region.starts_with(prefix);
    match region {
        _ if is_in("cn-") => "amazonaws.com.cn",
        _ if is_in("us-isob-") => "sc2s.sgov.gov",
        _ if is_in("us-iso-") => "c2s.ic.gov",
        _ if is_in("eusc-") => "amazonaws.eu",
        _ => "amazonaws.com",
    }
}

/// Returns the token service for a role: that of the region, or else one in the role's partition,
/// because tokens of one partition are not known in another.
pub(super) fn sts(region: Option<&str>, role: &str) -> String {
    let of_partition = || match role.split(':').nth(1) {
        Some("aws-cn") => Some("cn-north-1"),
        Some("aws-us-gov") => Some("us-gov-west-1"),
        Some("aws-iso") => Some("us-iso-east-1"),
        Some("aws-iso-b") => Some("us-isob-east-1"),
        Some("aws-eusc") => Some("eusc-de-east-1"),
        _ => None,
    };
    match region.or_else(of_partition) {
        // The global service is in us-east-1.
        None | Some("aws-global") => "https://sts.amazonaws.com".to_owned(),
        Some(region) => format!("https://sts.{region}.{}", dns_suffix(region)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_service_is_in_the_region_or_the_partition() {
        let role = |partition: &str| format!("arn:{partition}:iam::1:role/r");
        for (region, partition, expected) in [
            (None, "aws", "https://sts.amazonaws.com"),
            (Some("aws-global"), "aws", "https://sts.amazonaws.com"),
            (
                Some("eu-north-1"),
                "aws",
                "https://sts.eu-north-1.amazonaws.com",
            ),
            (
                Some("cn-north-1"),
                "aws-cn",
                "https://sts.cn-north-1.amazonaws.com.cn",
            ),
            (None, "aws-cn", "https://sts.cn-north-1.amazonaws.com.cn"),
            (
                None,
                "aws-us-gov",
                "https://sts.us-gov-west-1.amazonaws.com",
            ),
            (
                Some("us-gov-east-1"),
                "aws-us-gov",
                "https://sts.us-gov-east-1.amazonaws.com",
            ),
            (
                Some("us-iso-east-1"),
                "aws-iso",
                "https://sts.us-iso-east-1.c2s.ic.gov",
            ),
        ] {
            assert_eq!(sts(region, &role(partition)), expected);
        }
    }
}
