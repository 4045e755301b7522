--- simulated_job: the ranks and groups of a simulated job, and how their calls meet. simulate.lua runs the ranks.
local core = require "argand.core"

local fibers = core.dist

local M = {}

local IS_PAIR = {send = true, receive = true}

-- ---- ranks ----

local Rank = {}
Rank.__index = Rank

-- Whether it can go on: it has not begun, or what it waits for is done.
function Rank:is_ready()
  return self.is_polling or self.waits_for == nil or self.waits_for.is_done
end

-- ---- members: what a group of a simulated rank does (see group.lua) ----

local Member = {}
Member.__index = Member

local function raise_cancel(job, rank, op, seq)
  local cancel = job.is_cancelled
  fibers.raise {
    code = cancel.code, op = op, got = cancel.reason, hint = cancel.hint, culprits = cancel.culprits, rank = rank.name,
    seq = seq,
    message = ("%s: %s%s"):format(op, cancel.reason, cancel.hint and "; " .. cancel.hint or ""),
  }
end

local function check_open(member, op)
  local rank = member.of
  if rank.is_ending then error(fibers.fiber_end, 0) end
  if rank.job.current() ~= rank then
    core.raise("state", op, ("the group belongs to simulated rank %d, and is used by another one"):format(rank.name))
  end
  if member.is_closed or member.group.epoch ~= rank.job.epoch then
    core.raise("state", op, "the group of " .. member.size .. " ranks is closed", "make it again: dist.group")
  end
end

-- Puts a call at the end of the member's queue.
local function enqueue(member, call)
  local rank, job = member.of, member.of.job
  check_open(member, call.kind)
  rank.num_calls = rank.num_calls + 1
  local item = {call = call, member = member, is_done = false}
  if job.is_cancelled then
    item.is_done, item.cancelled = true, true
    return item
  end
  for _, fault in ipairs(job.faults) do
    if fault.rank == rank.index and fault.at == rank.num_calls then item.fault = fault.kind end
  end
  table.insert(member.queue, item)
  return item
end

local function wait(rank, item)
  while not item.is_done do
    if rank.is_ending then error(fibers.fiber_end, 0) end
    rank.waits_for = item
    fibers.fiber_wait()
  end
end

local function result_of(item)
  local rank = item.member.of
  if rank.is_ending then error(fibers.fiber_end, 0) end
  if item.cancelled then raise_cancel(rank.job, rank, item.call.kind, item.seq) end
  if item.error then
    local fields = {rank = rank.name}
    for key, value in pairs(item.error) do fields[key] = value end
    fibers.raise(fields)
  end
  return item.result
end

function Member:run(call)
  local item = enqueue(self, call)
  wait(self.of, item)
  return result_of(item)
end

local Work = {}
Work.__index = Work

-- The clock is virtual: a timeout of the wait itself would never pass before the call's own.
function Work:wait()
  wait(self.rank, self.item)
  return result_of(self.item)
end

function Work:is_done()
  local rank, item = self.rank, self.item
  if item.is_done then return true end
  if rank.is_ending then error(fibers.fiber_end, 0) end
  rank.is_polling = true
  rank.waits_for = item
  fibers.fiber_wait()
  return item.is_done
end

function Member:start(call) return setmetatable({item = enqueue(self, call), rank = self.of}, Work) end

function Member:world_rank(rank)
  local other = self.group.ranks[rank + 1]
  if not other then
    core.raise("value", "world_rank", ("rank: expected 0 to %d, got %s"):format(self.size - 1, tostring(rank)))
  end
  return other.name
end

function Member:split(ranks)
  local last = -1
  for _, rank in ipairs(ranks) do
    if rank <= last or rank >= self.size then
      core.raise("value", "group", ("ranks: expected ranks 0 to %d, each once, got %d"):format(self.size - 1, rank))
    end
    last = rank
  end
  if #ranks == 0 then core.raise("value", "group", "ranks: expected at least one rank, got none") end
  return self:run({kind = "group", ranks = ranks})
end

function Member:regroup(min_size)
  local rank, job = self.of, self.of.job
  if rank.is_ending then error(fibers.fiber_end, 0) end
  if not job.is_cancelled then job:cancel("peer", {}, ("rank %d regroups"):format(rank.name)) end
  local item = {call = {kind = "regroup"}, member = self, is_done = false,
    min_size = min_size > 0 and min_size or math.floor(self.size / 2) + 1}
  rank.regroups = item
  wait(rank, item)
  rank.regroups = nil
  return result_of(item)
end

function Member:close()
  check_open(self, "close")
  self.is_closed = true
  return true
end

function Member:abort(reason)
  local rank = self.of
  rank.job:cancel("peer", {rank.name}, ("rank %d failed: %s"):format(rank.name, reason))
end

function Member:note(text) self.of.note = text end
function Member:has_ended()
  local job = self.of.job
  return job.is_cancelled ~= nil or self.is_closed or self.group.epoch ~= job.epoch
end
function Member:plan() return "simulated" end
function Member:describe()
  local job = self.of.job
  return {transport = "simulated", encrypted = false, epoch = job.epoch,
          stats = {calls = job.calls, bytes_moved = 0, messages = job.segments, rejected = 0}}
end

-- ---- groups ----

local function new_group(job, ranks)
  local group = {job = job, ranks = ranks, members = {}, epoch = job.epoch, seq = 0, pairs = {}}
  for i, rank in ipairs(ranks) do
    group.members[i] = setmetatable({group = group, of = rank, rank = i - 1, size = #ranks, queue = {}}, Member)
  end
  table.insert(job.groups, group)
  return group
end

-- ---- the job ----

local Job = {}
Job.__index = Job

-- A generator of its own: the script's are left alone.
local function generator(seed)
  local state = seed % 2147483646 + 1
  return function(n)
    state = state * 16807 % 2147483647
    return state % n + 1
  end
end

--- A job of n ranks that run nothing yet. make_group makes what scripts see out of a member; current gives the rank that runs.
---@param opts table
---@param seed integer
---@param make_group fun(member: table): table
---@param current fun(): table?
---@return table
function M.new(opts, seed, make_group, current)
  local job = setmetatable({
    opts = opts, seed = seed, faults = opts.faults, random = generator(seed),
    make_group = make_group, current = current,
    ranks = {}, groups = {}, epoch = 0, seconds = 0, segments = 0, calls = 0,
  }, Job)
  for i = 1, opts.n do
    job.ranks[i] = setmetatable({
      job = job, index = i - 1, name = i - 1, state = "running", num_calls = 0,
      settings = {source = "simulate", rank = i - 1, size = opts.n, local_rank = i - 1, local_size = opts.n, job = "simulated"},
    }, Rank)
  end
  job:make_world(job.ranks)
  return job
end

function Job:make_world(ranks)
  local world = new_group(self, ranks)
  for i, rank in ipairs(ranks) do
    rank.name, rank.settings.rank, rank.settings.size = i - 1, i - 1, #ranks
    rank.world = self.make_group(world.members[i])
  end
end

--- Ends the world for all: who waits, and who calls later, gets this error. The first one counts.
---@param code string
---@param culprits integer[]
---@param reason string
---@param hint? string
function Job:cancel(code, culprits, reason, hint)
  if self.is_cancelled then return end
  self.is_cancelled = {code = code, culprits = culprits, reason = reason, hint = hint}
  for _, group in ipairs(self.groups) do
    for _, member in ipairs(group.members) do
      for _, item in ipairs(member.queue) do item.is_done, item.cancelled = true, true end
      member.queue = {}
    end
  end
end

-- The members' first calls, false where there is none yet; the members without one.
local function heads_of(group)
  local heads, missing, is_complete = {}, {}, true
  for i, member in ipairs(group.members) do
    local item = member.queue[1]
    heads[i] = item or false
    if not item then
      is_complete = false
      missing[#missing + 1] = member
    end
  end
  return heads, missing, is_complete
end

local function text_of(item)
  if item.call.kind ~= "group" then return item.call.kind end
  return ("group{%s}"):format(table.concat(item.call.ranks, ", "))
end

local function remove_heads(items)
  for _, item in ipairs(items) do table.remove(item.member.queue, 1) end
end

-- What the outcomes say goes to the items. The rank with a fault is gone after it, at the latest.
function Job:finish(items, outcomes)
  local failure, longest = nil, 0
  for i, item in ipairs(items) do
    local outcome = outcomes[i]
    longest = math.max(longest, outcome.seconds)
    item.result, item.error, item.is_done = outcome.result, outcome.error, true
    if outcome.error and (not failure or failure.code ~= "mismatch") then failure = outcome.error end
  end
  self.seconds = self.seconds + longest
  for _, item in ipairs(items) do
    if item.fault then
      local rank = item.member.of
      rank.state = item.fault
      if item.fault == "silent" and longest < self.opts.expiry then self.seconds = self.seconds + self.opts.expiry end
      self:cancel("peer", {rank.name},
        (item.fault == "silent" and "rank %d does not answer" or "rank %d has ended without closing"):format(rank.name))
    end
  end
  if failure then self:cancel(failure.code, failure.culprits or {}, failure.got or failure.message, failure.hint) end
end

-- Makes the call of these items; names: ranks of the world.
function Job:perform(items, sequence, roots)
  local setup = {seed = self.seed, sequence = sequence, world_ranks = {}, expiry = self.opts.expiry,
                 min_delay = self.opts.min_delay, max_delay = self.opts.max_delay}
  local calls = {}
  for i, item in ipairs(items) do
    item.seq = sequence
    setup.world_ranks[i] = item.member.of.name
    local call = item.call
    if roots then
      call = {}
      for key, value in pairs(item.call) do call[key] = value end
      call.root = roots[i]
    end
    calls[i] = call
    if item.fault and not setup.fault then setup.fault, setup.fault_rank = item.fault, i - 1 end
  end
  remove_heads(items)
  local outcomes, segments = fibers.simulate(setup, calls)
  self.segments = self.segments + segments
  self.calls = self.calls + 1
  self:finish(items, outcomes)
end

-- All members have called dist.group, with the same ranks: those in it get their member.
function Job:perform_split(group, items)
  group.seq = group.seq + 1
  for i = 2, #items do
    if text_of(items[i]) ~= text_of(items[1]) then
      local a, b = items[1].member.of.name, items[i].member.of.name
      local reason = ("rank %d called %s, rank %d called %s"):format(a, text_of(items[1]), b, text_of(items[i]))
      self:cancel("mismatch", {a, b}, reason, "all ranks of a group must make the same calls in the same order")
      return
    end
  end
  local ranks = {}
  for i, rank in ipairs(items[1].call.ranks) do ranks[i] = group.ranks[rank + 1] end
  local child = new_group(self, ranks)
  for i, rank in ipairs(items[1].call.ranks) do items[rank + 1].result = child.members[i] end
  remove_heads(items)
  for _, item in ipairs(items) do item.is_done = true end
end

-- A send and a receive of two ranks that have reached each other.
function Job:make_pair(group)
  for i, member in ipairs(group.members) do
    local item = member.queue[1]
    if item and item.call.kind == "send" then
      local peer = group.members[(item.call.root or -1) + 1]
      local other = peer and peer.queue[1]
      if other and other.call.kind == "receive" and other.call.root == i - 1 and peer ~= member then
        local key = ("%d>%d"):format(i - 1, item.call.root)
        group.pairs[key] = (group.pairs[key] or 0) + 1
        self:perform({item, other}, group.pairs[key], {1, 0})
        return true
      end
    end
  end
  return false
end

-- Makes the next call of this group if all its members have come to it.
function Job:make_call_of(group)
  if self:make_pair(group) then return true end
  local heads, missing, is_complete = heads_of(group)
  for _, member in ipairs(missing) do
    if #missing < #heads and (member.of.state == "ended" or member.is_closed) then
      self:cancel("peer", {member.of.name}, ("rank %d has left"):format(member.of.name))
      return true
    end
  end
  if not is_complete then return false end
  local is_split = false
  for _, item in ipairs(heads) do
    if IS_PAIR[item.call.kind] then return false end
    is_split = is_split or item.call.kind == "group"
  end
  if is_split then
    self:perform_split(group, heads)
  else
    group.seq = group.seq + 1
    self:perform(heads, group.seq)
  end
  return true
end

-- All ranks that live have called dist.regroup: they are the next world.
function Job:regroup()
  local joined = {}
  for _, rank in ipairs(self.ranks) do
    if rank.state == "running" then
      if not rank.regroups or rank.regroups.is_done then return false end
      joined[#joined + 1] = rank
    end
  end
  if #joined == 0 then return false end
  local least = 1
  for _, rank in ipairs(joined) do least = math.max(least, rank.regroups.min_size or 1) end
  if #joined < least then
    for _, rank in ipairs(joined) do
      local item = rank.regroups
      item.error = {code = "peer", op = "regroup", message = ("regroup: expected %d ranks, got %d"):format(least, #joined),
                    expected = least .. " ranks", got = tostring(#joined)}
      item.is_done = true
    end
    return true
  end
  self.epoch, self.is_cancelled, self.groups = self.epoch + 1, nil, {}
  local world = new_group(self, joined)
  for i, rank in ipairs(joined) do
    rank.name, rank.settings.rank, rank.settings.size = i - 1, i - 1, #joined
    rank.regroups.result, rank.regroups.is_done = world.members[i], true
  end
  return true
end

--- Makes one call that can be made, of a group chosen by the seed; false when there is none.
---@return boolean
function Job:make_call()
  local count = #self.groups
  local first = self.random(count)
  for i = 0, count - 1 do
    if self:make_call_of(self.groups[(first + i - 1) % count + 1]) then return true end
  end
  return self:regroup()
end

-- Whom the calls of a group that cannot be made wait for: who made none, or one of another sort.
local function waited_for(group)
  local heads, missing = heads_of(group)
  local culprits, num_pairs = {}, 0
  for _, member in ipairs(missing) do culprits[#culprits + 1] = member.of.name end
  if #missing == #heads then return nil end
  for _, item in ipairs(heads) do
    if item and IS_PAIR[item.call.kind] then num_pairs = num_pairs + 1 end
  end
  local is_pairs_only = num_pairs == #heads - #missing
  if is_pairs_only then culprits = {} end
  for _, item in ipairs(heads) do
    if item and IS_PAIR[item.call.kind] then
      culprits[#culprits + 1] = is_pairs_only and group.ranks[item.call.root + 1].name or item.member.of.name
    end
  end
  table.sort(culprits)
  return culprits
end

--- No rank can go on and no call can be made: the calls that wait time out, naming who did not come.
function Job:resolve_deadlock()
  for _, group in ipairs(self.groups) do
    local culprits = waited_for(group)
    if culprits then
      local names = table.concat(culprits, ", ")
      self.seconds = self.seconds + self.opts.timeout
      self:cancel("timeout", culprits, ("rank%s %s did not come within %g s"):format(#culprits > 1 and "s" or "", names,
        self.opts.timeout))
      return
    end
  end
  for _, rank in ipairs(self.ranks) do -- a regroup that others do not join
    local item = rank.regroups
    if rank.state == "running" and item and not item.is_done then
      item.error = {code = "timeout", op = "regroup", got = "the others did not come",
                    message = "regroup: the others did not come"}
      item.is_done = true
    end
  end
end

return M
