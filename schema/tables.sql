-- The rows that everything else is derived from. Times are integer milliseconds since 1970-01-01T00:00:00Z.

create table scope (
    id         integer primary key,
    user       text    not null,
    session    text    check (session <> ''),          -- null: the user's own scope, visible from all of the user's sessions
    next_turn  integer not null default 0,             -- high-water mark: the number of the next turn, never lowered
    extracted_to integer not null default -1,          -- the last turn that memories were made of; -1: none yet
    summary    integer,                                -- chain of the session's summary, a memory of the user's own scope
    status     text    check (status in ('pending', 'processing', 'processed', 'failed')),  -- of a session that was created as one
    metadata   text    not null default '{}' check (json_valid(metadata)),
    idle_ms    integer,                                -- so long after its last turn it is due to be processed
    lease_until integer,                               -- until then somebody processes it
    processed_at integer,
    on_contradiction text check (on_contradiction in ('supersede', 'ask')),  -- of a user's own scope; null: as the store says
    created_at integer not null
) strict;
create unique index scope_name on scope (user, coalesce(session, ''));

create table memory (
    rowid      integer primary key autoincrement,      -- never reused; key of the search indexes
    id         text    not null unique,
    scope      integer not null references scope (id),
    kind       text    not null check (kind in ('turn', 'fact', 'pinned', 'summary')),
    role       text    not null,
    turn       integer check ((turn is not null) = (kind = 'turn') and turn >= 0),
    text       text    not null,
    at         integer not null,
    created_at integer not null,
    expires_at integer,
    valid_from integer,                                -- from when the statement is true; null: always was
    valid_to   integer,                                -- until when, itself left out; null: goes on
    chain      integer not null,                       -- rowid of the chain's first version
    version    integer not null check (version >= 1),
    ended_at   integer,
    end_reason text    check (end_reason in ('updated', 'merged', 'invalidated', 'conflict_resolved', 'system_correction')),
    ended_by   integer,                                -- rowid of the successor, in memory or tombstone
    end_note   text,                                   -- why, in the words of who decided; gone when the successor is forgotten
    held       text    check (held in ('proposed', 'trash')),  -- kept back: null for what counts
    seen       integer not null default 1,             -- how often the same statement was made while it was live
    checked    integer not null default 0 check (checked in (0, 1)),  -- 1: a judge has compared it with what was known
    digest     integer,                                -- of the text, to recognise a repeated statement; null for turns
    metadata   text    not null default '{}' check (json_valid(metadata)),
    check ((ended_at is null) = (end_reason is null)),
    check (ended_at is not null or (ended_by is null and end_note is null)),
    check (valid_from < valid_to),
    check (kind <> 'turn' or (valid_from is null and valid_to is null))
) strict;
create unique index memory_version on memory (chain, version);
create unique index memory_head on memory (chain) where ended_at is null and held is null;
create unique index memory_turn on memory (scope, turn) where kind = 'turn' and ended_at is null and held is null;
create index memory_scan on memory (scope, ended_at, at, kind, expires_at, held, valid_from, valid_to);
create index memory_pin on memory (scope) where kind = 'pinned' and ended_at is null;
create index memory_summary on memory (scope, at) where kind = 'summary' and ended_at is null;
create index memory_unchecked on memory (rowid) where kind in ('fact', 'pinned') and checked = 0 and ended_at is null;
create index memory_held on memory (held) where held is not null;
create index memory_expiry on memory (expires_at) where expires_at is not null;
create index memory_statement on memory (scope, digest) where digest is not null and ended_at is null;

create trigger memory_never_changes
before update of rowid, id, role, turn, text, at, expires_at, valid_from, valid_to, digest, metadata on memory
begin
    select raise(abort, 'a stored version never changes: a correction adds the next version');
end;
-- A proposal is no version yet: when it is accepted it takes its place in a chain.
create trigger memory_keeps_its_place
before update of scope, kind, chain, version, created_at on memory when old.held is not 'proposed'
begin
    select raise(abort, 'a stored version never changes: a correction adds the next version');
end;

create table memory_key (                              -- names given by callers that make a call repeatable
    user   text    not null,
    key    text    not null,
    memory integer not null references memory (rowid) on delete cascade,
    primary key (user, key)
) strict, without rowid;
create index memory_key_memory on memory_key (memory);

create table feedback (                                -- append-only
    id      integer primary key autoincrement,
    memory  integer not null references memory (rowid) on delete cascade,
    outcome text    not null check (outcome in ('useful', 'dead_end', 'corrected')),
    at      integer not null
) strict;
create index feedback_memory on feedback (memory);

create table link (
    src integer not null references memory (rowid) on delete cascade,
    dst integer not null,                              -- rowid, in memory or tombstone
    rel text    not null check (rel in ('supersedes', 'consolidated_from', 'extracted_from', 'merged_from')),
    primary key (src, rel, dst)
) strict, without rowid;
create index link_dst on link (dst);

create table category (
    id          integer primary key,
    name        text    not null unique check (name glob '[a-z]*' and name not glob '*[^a-z0-9_]*'),
    description text    not null default '',
    created_at  integer not null
) strict;

create table memory_category (
    memory   integer not null references memory (rowid) on delete cascade,
    category integer not null references category (id) on delete cascade,
    primary key (memory, category)
) strict, without rowid;
create index memory_category_category on memory_category (category);

create table tombstone (                               -- what is left of a forgotten version; holds no text
    rowid        integer primary key,
    id           text    not null unique,
    chain        integer not null,
    version      integer not null,
    forgotten_at integer not null
) strict;
create index tombstone_chain on tombstone (chain);

create table trash (                                   -- until when a version with held = 'trash' can be brought back
    memory integer primary key references memory (rowid) on delete cascade,
    until  integer not null
) strict;

create table undone_note (                             -- why a version had ended that undo() let live again, for redo()
    memory   integer primary key references memory (rowid) on delete cascade,
    note     text    not null,
    ended_by integer,                                  -- gone when this is forgotten
    until    integer not null
) strict;

create table operation (                               -- the last calls of each user, for undo(): ids and states, never text
    id    integer primary key,
    call  integer not null,                            -- the id of the call's first transaction
    user  text    not null,
    verb  text    not null,
    at    integer not null,
    state text    not null check (state in ('done', 'undone', 'final')),
    steps text    not null check (json_valid(steps))
) strict;
create index operation_user on operation (user, state, id);

create table conflict (                                -- a statement that waits, because it contradicts what is known
    id          integer primary key,
    name        text    not null unique,               -- by which callers know it
    user        text    not null,
    memory      integer not null,                      -- rowid of the proposal, in memory or tombstone
    status      text    not null check (status in ('pending', 'failed', 'resolved')),
    error       text,                                  -- of the last attempt to resolve it
    resolution  text    check (resolution in ('keep_old', 'take_new', 'keep_both', 'own_text', 'answers', 'no_longer', 'forgotten', 'undone')),
    created_at  integer not null,
    resolved_at integer,
    check ((status = 'resolved') = (resolved_at is not null and resolution is not null)),
    check (error is null or status = 'failed')
) strict;
create index conflict_memory_proposed on conflict (memory);

create table conflict_memory (                         -- what the proposal contradicts
    conflict integer not null references conflict (id) on delete cascade,
    memory   integer not null,                         -- rowid, in memory or tombstone
    reason   text,                                     -- gone when the memory is forgotten
    primary key (conflict, memory)
) strict, without rowid;
create index conflict_memory_memory on conflict_memory (memory);

create table conflict_result (                         -- what resolving it stored or let live
    conflict integer not null references conflict (id) on delete cascade,
    memory   integer not null,                         -- rowid, in memory or tombstone
    primary key (conflict, memory)
) strict, without rowid;

create table conflict_question (                       -- gone when a memory of the conflict is forgotten
    conflict integer not null references conflict (id) on delete cascade,
    number   integer not null,
    question text    not null,
    options  text    not null check (json_valid(options)),
    answer   text,
    primary key (conflict, number)
) strict, without rowid;

create table extraction_failure (                      -- what a model answered that could not be used; gone when that is repeated
    scope     integer primary key references scope (id) on delete cascade,
    error     text    not null,
    answer    text    not null,
    failed_at integer not null
) strict;

create table setting (
    name  text primary key,
    value text not null check (json_valid(value))
) strict, without rowid;

create table model (                                   -- one vector for each memory, of one model and one input
    id          integer primary key,
    name        text    not null,
    fingerprint text    not null,                      -- sha256 of the model, or '' where the embedder has none
    input       text    not null check (input in ('own', 'context')),  -- the memory's text; or the turn before it and its text
    dim         integer not null check (dim > 0),
    centre      blob,                                  -- float32[dim], little-endian; null until enough vectors are there
    table_name  text    not null unique,               -- its vectors; <table_name>_bits is the index derived from them
    serving     integer not null check (serving in (0, 1)),  -- 0 while it is being filled to replace the others
    indexed_to  integer,                               -- the bit index holds every change up to this; null: there is none
    created_at  integer not null,
    unique (name, fingerprint, input, dim)
) strict;

create table change (                                  -- which memories' vectors came, ended or went; old ones are dropped
    seq    integer primary key,
    memory integer not null,                           -- rowid
    added  integer not null check (added in (0, 1))    -- 1: the memory had no vector before
) strict;

create table pending (                                 -- memories that still wait for a model's vector
    model  integer not null references model (id) on delete cascade,
    memory integer not null references memory (rowid) on delete cascade,
    primary key (model, memory)
) strict, without rowid;
create index pending_memory on pending (memory);
