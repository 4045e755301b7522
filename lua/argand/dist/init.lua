--- dist: distributed jobs: `local dist = require "argand.dist"`. Ranks are names: 0 to size - 1.
--
-- Every function joins the job that the environment describes (argand run, torchrun, mpirun, srun, Kubernetes) when dist.init
-- was not called; a script that nothing started as a job is a job of one rank. All ranks make the same calls in the same order.
-- What differs, or who is lost, is an error on every rank: code "mismatch", "peer" or "timeout", with the fields rank (who sees
-- it), culprits (ranks of the world), seq and op. After one the world has ended: dist.regroup goes on with those that live.
local core = require "argand.core"
local collectives = require "argand.dist.collectives"
local groups = require "argand.dist.group"
local options_of = require "argand.options"

local Group = groups.Group

local M = {Group = Group, Handle = collectives.Handle}

-- ---- the job ----

--- Joins the job: what the environment says, with options over it. Raises whatever goes wrong, network and files too: a rank
-- that goes on alone after it would compute something else. A second call is an error unless it asks for the same.
---@param options? argand.dist.InitOptions
function M.init(options) groups.init(options) end

--- Says goodbye and leaves; without it the others learn that this rank left. nil and the error when not all others have
-- closed after `wait` seconds (5).
---@param wait? number
---@return true?, argand.Error?
function M.close(wait) return groups.close(wait) end

--- Ends the job on all ranks with an error "peer": "rank 2 failed: reason".
---@param reason? string
function M.abort(reason) groups.world().member:abort(tostring(reason or "aborted")) end

--- Whether jobs of several processes are possible in this build.
---@return boolean
function M.is_available() return core.dist.is_available() end

--- Whether this process has joined a job and not left it.
---@return boolean
function M.is_initialized() return groups.is_initialized() end

--- This process's rank in the group (default: the world).
---@param group? argand.dist.Group
---@return integer
function M.rank(group) return groups.require("rank", group):rank() end

--- The number of ranks.
---@param group? argand.dist.Group
---@return integer
function M.size(group) return groups.require("size", group):size() end

--- The rank among those on this host.
---@return integer
function M.local_rank() return groups.settings().local_rank or 0 end

--- How many ranks are on this host.
---@return integer
function M.local_size() return groups.settings().local_size or 1 end

--- What is known of the job: source (who described it), rank, size, local_rank, local_size, transport, encrypted, epoch, job,
-- note, stats {calls, bytes_moved, messages, rejected}.
---@return table
function M.info()
  local world, settings = groups.world(), groups.settings()
  local info = world.member:describe()
  info.source, info.note, info.job = settings.source, settings.note, settings.job
  info.rank, info.size = world:rank(), world:size()
  info.local_rank, info.local_size = M.local_rank(), M.local_size()
  return info
end

--- Where this rank is, for people: shown by the launcher, and in other ranks' timeout errors.
---@param text string "epoch 3, step 120"
function M.note(text) groups.world().member:note(tostring(text)) end

-- ---- groups ----

--- The group of all ranks.
---@return argand.dist.Group
function M.world() return groups.world() end

--- A group of some ranks of the world, in rising order. All ranks of the world call it; false for those that are not in it.
---@param ranks integer[]
---@return argand.dist.Group|false
function M.group(ranks) return groups.split(groups.world(), ranks) end

--- A group of some ranks of this one. All of its ranks call it; false for those that are not in the new
-- one.
---@param ranks integer[]
---@return argand.dist.Group|false
function Group:split(ranks) return groups.split(self, ranks) end

--- Goes on after a failure with the ranks that live and call this: they make a new world, in their old order. Groups made
-- before are dead. An error "peer" when fewer than min_size (0: more than half of the old size) have come within `grace` (10)
-- seconds.
---@param options? {min_size: integer, grace: number}
---@return argand.dist.Group world
function M.regroup(options)
  local opts = options_of.read("regroup", options, {min_size = 0, grace = 10})
  return groups.regroup(opts.min_size, opts.grace)
end

-- ---- collectives ----

local function group_of(owner, opts)
  if type(opts) ~= "table" then return groups.require(owner) end -- which the call refuses, unless it is nil
  return groups.require(owner, opts.group)
end

-- With a group as first argument they are methods of groups; here the group is an option.
for name in pairs(collectives.OPTIONS) do
  local fn = collectives[name]
  Group[name] = function(group, ...) return fn(group, ...) end
  local with_peer = name == "send"
  local options_first = name == "barrier"
  if with_peer then
    M[name] = function(t, to, opts) return fn(group_of(name, opts), t, to, opts) end
  elseif options_first then
    M[name] = function(opts) return fn(group_of(name, opts), opts) end
  else -- what is given (a tensor; of receive a rank), then options
    M[name] = function(value, opts) return fn(group_of(name, opts), value, opts) end
  end
end

--- How a call would run: the algorithm, and what each is expected to take.
---@param kind string "all_reduce" …
---@param t argand.Tensor
---@param opts? {op: string, root: integer, group: argand.dist.Group}
---@return string
function M.plan(kind, t, opts)
  local read = options_of.read("plan", opts, {op = options_of.optional.string, root = 0, group = options_of.optional.any})
  local group = groups.require("plan", read.group)
  return group.member:plan {kind = kind, input = t, op = read.op, root = read.root}
end

--- Memory in which all_reduce need not copy: all ranks call it together. dist.all_reduce(own, {out = result}) puts the sum
-- into each rank's result; with shared_result there is one for all ranks of this host, for reading, and that takes half the
-- time. dist.all_reduce_(own) puts the sum back into each rank's own tensor, by way of the result. Zeros at first.
---@param numel integer
---@param opts? {dtype?: string, shared_result?: boolean, group?: argand.dist.Group}
---@return argand.Tensor own [numel] of this rank
---@return argand.Tensor result [numel]
function M.shared_tensor(numel, opts)
  local read = options_of.read("shared_tensor", opts, {dtype = "f32", shared_result = false,
    group = options_of.optional.any})
  local member = groups.require("shared_tensor", read.group).member
  if not member.handle then
    core.raise("unsupported", "shared_tensor", "expected a real job, got a simulated rank", "make ordinary tensors")
  end
  return core.dist.shared_tensor(member.handle, read.dtype, numel, read.shared_result)
end

-- ---- what can be done ----

--- Whether a call of this kind can take such a tensor; if not, the reason, which tells what the device, the dtype and this
-- build cannot.
---@param kind string "all_reduce" …
---@param of argand.Tensor|{dtype: string, device: string}
---@param reduce_op? string "sum" …
---@return boolean, string? reason
function M.supports(kind, of, reduce_op)
  if core.is_tensor(of) then return core.dist.supports(kind, reduce_op, of.dtype, of.device) end
  local read = options_of.read("supports", of, {dtype = "f32", device = "cpu"})
  return core.dist.supports(kind, reduce_op, read.dtype, read.device)
end

-- ---- helpers ----

--- Runs fn(...) on one rank of the world only and returns its results there; nothing elsewhere.
---@param rank integer
---@param fn function
---@return any
function M.on(rank, fn, ...)
  local size = M.size()
  if type(rank) ~= "number" or rank ~= math.floor(rank) or rank < 0 or rank >= size then
    core.raise("value", "on", ("rank: expected a rank, 0 to %d, got %s"):format(size - 1, tostring(rank)))
  end
  if type(fn) ~= "function" then core.raise("argument", "on", "fn: expected a function, got " .. type(fn)) end
  if M.rank() == rank then return fn(...) end
end

--- Two generators from one seed: `same` gives the same numbers on all ranks, `own` others on each. The seed of rank 0 counts;
-- without one it is drawn there from the default generator.
---@param options? {seed: integer, group: argand.dist.Group}
---@return {same: argand.Generator, own: argand.Generator}
function M.rng(options)
  local opts = options_of.read("rng", options, {seed = options_of.optional.number, group = options_of.optional.any})
  local group = groups.require("rng", opts.group)
  local seed = opts.seed
  if seed and (seed < 0 or seed ~= math.floor(seed) or seed >= 2 ^ 53) then
    core.raise("value", "rng", "seed: expected a whole number, 0 to 2^53, got " .. tostring(seed))
  end
  if not seed and group:rank() == 0 then
    seed = math.floor(require("argand").rand({1}, {dtype = "f64"}):item() * 2 ^ 48)
  end
  seed = collectives.broadcast(group, seed or 0)
  return {same = core.generator(seed), own = core.generator((seed + (group:rank() + 1) * 2654435761) % 2 ^ 53)}
end

--- Runs fn(rank) as n simulated ranks in this process: see argand.dist.simulate.
---@param options? argand.dist.SimulateOptions
---@return fun(fn: fun(rank: integer): ...): argand.dist.Report
function M.simulate(options) return require("argand.dist.simulate").simulate(options) end

-- What ddp.lua adds is loaded when first asked for.
local later = {check = true, register = true, registered = true}

return setmetatable(M, {
  __index = function(_, name)
    if not later[name] then return nil end
    local fn = require("argand.dist.ddp")[name]
    rawset(M, name, fn)
    return fn
  end,
})
