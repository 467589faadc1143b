-- What a reader without sqlmem needs. "Now" is SQLite's clock; julianday works in every SQLite that can open the file.

create view memory_history as
select m.id,
       s.user,
       s.session,
       m.kind,
       m.role,
       m.turn,
       m.text,
       case
           when m.held is not null then m.held
           when m.ended_by is not null then 'superseded'
           when m.ended_at is not null then 'ended'
           when m.expires_at <= cast(round((julianday('now') - 2440587.5) * 86400000) as integer) then 'expired'
           else 'live'
       end as state,
       strftime('%Y-%m-%dT%H:%M:%fZ', m.at / 1000.0, 'unixepoch') as time,
       strftime('%Y-%m-%dT%H:%M:%fZ', m.created_at / 1000.0, 'unixepoch') as created,
       strftime('%Y-%m-%dT%H:%M:%fZ', m.expires_at / 1000.0, 'unixepoch') as expires,
       strftime('%Y-%m-%dT%H:%M:%fZ', m.valid_from / 1000.0, 'unixepoch') as valid_from,
       strftime('%Y-%m-%dT%H:%M:%fZ', m.valid_to / 1000.0, 'unixepoch') as valid_to,
       (select v.id from memory v where v.chain = m.chain order by v.version limit 1) as first_id,
       m.version,
       strftime('%Y-%m-%dT%H:%M:%fZ', m.ended_at / 1000.0, 'unixepoch') as ended,
       m.end_reason,
       m.end_note,
       coalesce((select n.id from memory n where n.rowid = m.ended_by),
                (select t.id from tombstone t where t.rowid = m.ended_by)) as replaced_by,
       m.seen,
       (select json_group_array(c.name)
          from memory_category mc join category c on c.id = mc.category
         where mc.memory = m.rowid) as categories,
       m.metadata,
       m.rowid as number
  from memory m
  join scope s on s.id = m.scope;

create view live_memory as select * from memory_history where state = 'live';

create view superseded_memory as select * from memory_history where state = 'superseded';

create view expired_memory as select * from memory_history where state = 'expired';

create view open_conflict as
select c.name as id, c.user, p.text as proposed, c.memory as proposed_number, c.status, c.error,
       strftime('%Y-%m-%dT%H:%M:%fZ', c.created_at / 1000.0, 'unixepoch') as created,
       (select json_group_array(json_object('id', m.id, 'text', m.text, 'reason', cm.reason))
          from conflict_memory cm join memory m on m.rowid = cm.memory
         where cm.conflict = c.id) as conflicting
  from conflict c left join memory p on p.rowid = c.memory
 where c.status <> 'resolved';

create view session_turns as
select user, session, turn, role, text, time, id
  from memory_history
 where kind = 'turn' and state = 'live'
 order by user, session, turn;
