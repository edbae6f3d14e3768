-- What SQL reads: the objects and their history as jsonb, in a schema of its own. The
-- projector writes it from the feed; nothing here slows or stops the feed.

-- feed is the schema of the feed that is projected, '' until there is one: the numbers of
-- scopes are its own.
CREATE TABLE kube.version (version int NOT NULL, feed text NOT NULL DEFAULT '');

-- Who writes; see the table of the feed with this name.
CREATE TABLE kube.lease (
  grp text PRIMARY KEY, holder text NOT NULL, expires timestamptz NOT NULL, heard timestamptz NOT NULL, silent bigint[] NOT NULL DEFAULT '{}'
);

-- Where the projector is in the log of each scope, in the transaction of what it wrote.
CREATE TABLE kube.place (
  scope bigint PRIMARY KEY, cluster text NOT NULL, resource text NOT NULL,
  seq bigint NOT NULL, tx bigint NOT NULL, rv bigint NOT NULL,
  as_of timestamptz NOT NULL,              -- of the last mark that is in
  skipped bigint NOT NULL DEFAULT 0,       -- objects that jsonb refuses
  skipped_last text NOT NULL DEFAULT ''    -- the last one of them
);

CREATE TABLE kube.object (
  scope bigint NOT NULL, cluster text NOT NULL, resource text NOT NULL,
  namespace text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
  uid text NOT NULL, rv bigint NOT NULL, key bytea NOT NULL,
  object jsonb NOT NULL,
  PRIMARY KEY (scope, key)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05);
-- Kubernetes does not limit the names of all kinds, and PostgreSQL those in an index.
CREATE INDEX object_name ON kube.object (resource, left(namespace, 253), left(name, 253));

-- Each state that an object had, and when. change is created, updated or deleted; a
-- deletion has the last state.
CREATE TABLE kube.history (
  scope bigint NOT NULL, seq bigint NOT NULL, cluster text NOT NULL, resource text NOT NULL,
  change text NOT NULL,
  at timestamptz NOT NULL,                 -- when it was published, seconds after it happened
  after timestamptz,                       -- found by a list: it happened after this
  namespace text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
  uid text NOT NULL, rv bigint NOT NULL,
  object jsonb NOT NULL,
  PRIMARY KEY (scope, seq, at)
);
CREATE INDEX history_at ON kube.history (resource, at);
CREATE INDEX history_name ON kube.history (resource, left(namespace, 253), left(name, 253), at);
CREATE INDEX history_age ON kube.history (at);

INSERT INTO kube.version (version) VALUES (1);
