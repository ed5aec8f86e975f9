//! Checks from time to time whether the tags of components still point to the artifacts that were pulled. Reports a
//! moved tag, and does not follow it. A registry that does not answer changes nothing.

use crate::policies::component_cache::ComponentRequest;
use crate::policies::components::Components;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use transom_artifacts::{Location, Unread};
use transom_core::backoff;
use transom_core::catalogue::MovedTag;
use transom_core::policy::component::Image;

/// When the first look is at the latest: until then a moved tag is missing in the status, as if it had returned.
const FIRST: Duration = Duration::from_secs(30);

/// A tag that an active policy uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tag {
    pub(super) component: Location,
    /// The digest of the component that the policy demands.
    pub(super) digest: Option<String>,
    /// The manifest by which it was pulled, where that is known.
    pub(super) pulled: Option<String>,
}

/// What a registry says of a tag.
pub(super) enum TagAnswer {
    /// It still points to the manifest that was pulled.
    Same,
    /// It points to another one.
    Moved(MovedTag),
}

/// The answers about tags. Tags without an answer are left out.
pub(super) type TagAnswers = BTreeMap<Tag, TagAnswer>;

/// The looks at tags.
pub(super) struct Tags {
    components: Components,
    /// Seconds between two looks, with jitter; 0 for none.
    every_seconds: u32,
    due: Option<Instant>,
    asking: Option<JoinHandle<TagAnswers>>,
    seeds: RandomState,
}

impl Tags {
    /// Has asked nothing yet.
    pub(super) fn new(components: &Components, every_seconds: u32) -> Self {
        let mut tags = Self {
            components: components.clone(),
            every_seconds,
            due: None,
            asking: None,
            seeds: RandomState::new(),
        };
        tags.rest();
        let soon = Instant::now() + FIRST;
        tags.due = tags.due.map(|due| due.min(soon));
        tags
    }

    /// Sets the time of the next look.
    fn rest(&mut self) {
        let now = Instant::now();
        let wait = backoff::resync_ms(self.every_seconds, self.seeds.hash_one(now));
        self.due = wait.map(|wait| now + Duration::from_millis(wait));
    }

    /// Begins a look when it is time for one.
    pub(super) fn begin(&mut self, wanted: impl FnOnce() -> Vec<Tag>) {
        let is_due = self.due.is_some_and(|due| due <= Instant::now());
        if !is_due || self.asking.is_some() {
            return;
        }
        self.rest();
        let (components, mut tags) = (self.components.clone(), wanted());
        if !tags.is_empty() {
            // A tag that is never answered ends the look at its registry: each look begins at another one.
            let at = self.seeds.hash_one(Instant::now()) % tags.len() as u64;
            tags.rotate_left(usize::try_from(at).unwrap_or_default());
            self.asking = Some(tokio::spawn(ask(components, tags)));
        }
    }

    /// Waits for the answers to the look under way; for ever when there is none.
    pub(super) async fn answered(&mut self) -> TagAnswers {
        let Some(asking) = &mut self.asking else {
            return std::future::pending().await;
        };
        let answers = asking.await.unwrap_or_default();
        self.asking = None;
        answers
    }
}

impl Drop for Tags {
    fn drop(&mut self) {
        self.asking.iter().for_each(JoinHandle::abort);
    }
}

/// Asks for one tag at a time, so that pulls and looks at one registry together leave a process for another one. Of a
/// registry that gave nothing no more tags are asked for in this look: it may take as long for each of them.
async fn ask(components: Components, tags: Vec<Tag>) -> TagAnswers {
    let (mut answers, mut silent) = (TagAnswers::new(), BTreeSet::new());
    for tag in tags {
        let Some(image) = tag.component.image().cloned() else {
            continue;
        };
        if silent.contains(&image.registry) {
            continue;
        }
        match check_tag(&components, &tag, &image).await {
            Ok(Some(answer)) => drop(answers.insert(tag, answer)),
            Ok(None) => {}
            Err(unread) if !unread.silent => {}
            Err(_) => drop(silent.insert(image.registry)),
        }
    }
    answers
}

/// Whether one tag moved; `None` when it is not known by which manifest it was pulled.
async fn check_tag(
    components: &Components,
    tag: &Tag,
    image: &Image,
) -> Result<Option<TagAnswer>, Unread> {
    let pulled = match &tag.pulled {
        Some(pulled) => Some(pulled.clone()),
        None => recorded(components, tag.clone()).await,
    };
    let (Some(pulled), Some(images)) = (pulled, components.images()) else {
        return Ok(None);
    };
    let now = images.resolve(image).await?;
    if now == pulled {
        return Ok(Some(TagAnswer::Same));
    }
    let component = tag.component.to_string();
    Ok(Some(TagAnswer::Moved(MovedTag {
        component,
        pulled,
        now,
    })))
}

/// The manifest by which a tag was pulled, as the cache has it.
async fn recorded(components: &Components, tag: Tag) -> Option<String> {
    let kept = components.kept().clone();
    let record = tokio::task::spawn_blocking(move || {
        let asker = ComponentRequest {
            digest: tag.digest.as_deref(),
            ..ComponentRequest::default()
        };
        kept.record(&tag.component, asker)
    });
    record.await.ok()??.manifest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::component_cache::ComponentCache;
    use crate::policies::images::Images;
    use transom_artifacts::{Base, Sources};

    #[tokio::test]
    async fn the_first_look_is_soon_and_the_next_ones_are_as_far_apart_as_asked() {
        let components = Components::new(&Sources::default());
        let wait = |tags: &Tags| tags.due.map(|due| due.duration_since(Instant::now()));
        let first = |every_seconds| wait(&Tags::new(&components, every_seconds));
        assert_eq!(first(0), None);
        assert!(first(10) < Some(FIRST) && first(600) <= Some(FIRST));
        assert!(first(600) > Some(FIRST / 2));
        let mut tags = Tags::new(&components, 600);
        let mut looks = 0;
        for due in [tags.due, Some(Instant::now())] {
            tags.due = due;
            tags.begin(|| {
                looks += 1;
                Vec::new()
            });
        }
        assert_eq!(looks, 1);
        assert!(wait(&tags) > Some(FIRST * 10));
    }

    #[tokio::test]
    async fn a_registry_that_gives_nothing_is_asked_for_one_tag_of_a_look() {
        let folder = tempfile::tempdir().unwrap();
        let asked = folder.path().join("asked");
        let gone = r#"{"reason": "RegistryUnavailable", "message": "no", "silent": true}"#;
        let unfit = r#"{"reason": "ComponentNotFound", "message": "no"}"#;
        let script = format!(
            "echo \"$*\" >> {}; case \"$*\" in *gone*) echo '{gone}';; *lost*) echo '{unfit}';; *) echo '{}';; esac",
            asked.display(),
            r#"{"manifest": "sha256:b"}"#
        );
        let words = ["sh", "-c", &script, "sh"].map(Into::into);
        let components = Components::new(&Sources::default())
            .pulling(Images::new(words.to_vec()), ComponentCache::default());
        let tag = |at: &str| Tag {
            component: Location::parse(&format!("oci:{at}"), &Base::Nowhere).unwrap(),
            digest: None,
            pulled: Some("sha256:a".to_owned()),
        };
        let tags = [
            "gone.example/a:v1",
            "gone.example/b:v1",
            "here.example/lost:v1",
            "here.example/moved:v1",
        ];
        let answers = ask(components, tags.map(tag).to_vec()).await;
        assert_eq!(answers.len(), 1);
        assert!(matches!(answers[&tag(tags[3])], TagAnswer::Moved(_)));
        let asked = std::fs::read_to_string(asked).unwrap();
        assert_eq!(asked.lines().count(), 3, "{asked}");
    }
}
