//! Structs whose fields are the items of an array, in their order: messages, and parts of them.

/// Declares such a struct, with all that reads and writes it.
macro_rules! record {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident $(<$lifetime:lifetime>)? {
            $($(#[$about_field:meta])* $field:ident: $kind:ty,)*
        }
    )*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Debug, PartialEq)]
            pub struct $name $(<$lifetime>)? {
                $($(#[$about_field])* pub $field: $kind,)*
            }

            impl $(<$lifetime>)? $crate::wire::Encode for $name $(<$lifetime>)? {
                fn encode(&self, out: &mut $crate::wire::Writer<'_>) {
                    const FIELDS: &[&str] = &[$(stringify!($field)),*];
                    out.array(FIELDS.len());
                    $($crate::wire::Encode::encode(&self.$field, out);)*
                }
            }

            $crate::wire::record!(@decode $name [$($lifetime)?] $($field)*);

            #[cfg(test)]
            impl $(<$lifetime>)? $crate::samples::Sample for $name $(<$lifetime>)? {
                #[allow(unused_variables, reason = "some have no fields")]
                fn sample(choices: &mut $crate::samples::Choices<'_>) -> Self {
                    $name { $($field: $crate::samples::Sample::sample(choices),)* }
                }
            }
        )*
    };
    (@decode $name:ident [] $($field:ident)*) => {
        impl $crate::wire::Decode<'_> for $name {
            $crate::wire::record!(@function $name '_ $($field)*);
        }
    };
    (@decode $name:ident [$lifetime:lifetime] $($field:ident)*) => {
        impl<$lifetime> $crate::wire::Decode<$lifetime> for $name<$lifetime> {
            $crate::wire::record!(@function $name $lifetime $($field)*);
        }
    };
    (@function $name:ident $lifetime:lifetime $($field:ident)*) => {
        fn decode(
            reader: &mut $crate::wire::Reader<$lifetime>,
        ) -> Result<Self, $crate::wire::Mismatch> {
            const FIELDS: &[&str] = &[$(stringify!($field)),*];
            reader.fixed_array(FIELDS.len())?;
            Ok($name {
                $($field: $crate::wire::Decode::decode(reader)
                    .map_err(|mismatch| mismatch.in_field(stringify!($field)))?,)*
            })
        }
    };
}

pub(crate) use record;
