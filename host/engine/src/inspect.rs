//! Describes a component without a policy's grant. Runs it only to ask for its self-description.

use crate::engine::Engine;
use crate::failure::LoadError;
use crate::imports::{Capabilities, imports, needs};
use crate::load::fitting;
use transom_core::contract::description::{Description, Role};

/// What a component is.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// `sha256:<hex>` of its bytes.
    pub digest: String,
    /// Bytes of the component.
    pub size: u64,
    /// What it imports, apart from types.
    pub imports: Vec<String>,
    /// What it exports.
    pub exports: Vec<String>,
    /// The role whose exports it has, by name.
    pub world: Option<Role>,
    /// The capabilities that it would need.
    pub needs: Capabilities,
    /// The imports that no policy can grant; with any of these it cannot be loaded.
    pub ungrantable: Vec<String>,
    /// Its self-description, or why it could not be loaded even with what it needs.
    pub description: Result<Description, LoadError>,
}

impl Engine {
    /// Reads what a component is from its bytes.
    ///
    /// # Errors
    /// When the bytes are too many, or not a component that can be compiled.
    pub fn inspect(&self, bytes: &[u8]) -> Result<Inspection, LoadError> {
        let compiled = self.inner.compiled(bytes, false)?;
        let component = &compiled.component;
        let imports = imports(component);
        let (needs, ungrantable) = needs(&imports);
        let ty = component.component_type();
        let exports: Vec<_> = ty
            .exports(component.engine())
            .map(|(name, _)| name.to_owned())
            .collect();
        let world = fitting(component);
        let description = match world {
            Some(world) => self
                .load(bytes, world, &needs)
                .map(|guest| guest.description().clone()),
            None => Err(LoadError::Invalid(
                "it does not have the exports of any world".to_owned(),
            )),
        };
        let (digest, size) = (compiled.digest.clone(), compiled.size);
        Ok(Inspection {
            digest,
            size,
            imports,
            exports,
            world,
            needs,
            ungrantable,
            description,
        })
    }
}
