--- collectives: all_reduce and the others as functions of a group: options, nested tables, numbers, async handles, recording.
local core = require "argand.core"
local class = require "argand.class"
local gradients = require "argand.dist.gradients"
local options_of = require "argand.options"
local tables = require "argand.dist.tables"

local optional = options_of.optional

local M = {}

-- ---- options ----

local function known(more)
  local names = {group = optional.any, async = false, timeout = optional.number, algorithm = optional.string}
  for name, value in pairs(more) do names[name] = value end
  return names
end

-- Of every kind of call, by its name in Lua.
local OPTIONS = {
  all_reduce = known {op = "sum", contribute = true, out = optional.any},
  all_reduce_ = known {op = "sum", contribute = true},
  reduce = known {op = "sum", contribute = true, root = 0, out = optional.any},
  broadcast = known {root = 0, out = optional.any, requires_grad = optional.any},
  broadcast_ = known {root = 0},
  all_gather = known {uneven = false, out = optional.any},
  reduce_scatter = known {op = "sum", contribute = true, out = optional.any},
  gather = known {root = 0, out = optional.any},
  scatter = known {root = 0, out = optional.any, like = optional.any, shape = optional.table, dtype = optional.string,
                   requires_grad = optional.any},
  all_to_all = known {counts = optional.table, out = optional.any},
  send = known {},
  receive = known {out = optional.any, like = optional.any, shape = optional.table, dtype = optional.string,
                   requires_grad = optional.any},
  barrier = known {},
}
M.OPTIONS = OPTIONS

local NONE = {}

-- Most calls have no options, or few: they are checked, not copied.
local function read(owner, opts)
  if opts == nil then return NONE end
  local names = OPTIONS[owner]
  if type(opts) ~= "table" then return options_of.read(owner, opts, names) end
  for name, value in pairs(opts) do
    local default = names[name]
    local kind = type(default) == "table" and default.kind or type(default)
    if default == nil or (kind ~= "any" and type(value) ~= kind) then return options_of.read(owner, opts, names) end
  end
  return opts
end

local function check_rank(owner, arg, value, group)
  local size = group:size()
  if type(value) ~= "number" or value ~= math.floor(value) or value < 0 or value >= size then
    core.raise("value", owner, ("%s: expected a rank, 0 to %d, got %s"):format(arg, size - 1, tostring(value)))
  end
  return value
end

-- ---- handles ----

--- A call under way, from async = true. Inputs must not be written to before it is done. One that is dropped is finished in the
-- background.
---@class argand.dist.Handle
local Handle = class.new("Handle")

-- pending: list of what Handle waits for; finish() makes the result once all are done.
function Handle:init(pending, finish)
  self._pending, self._finish = pending, finish
end

--- Waits, and returns what the call without async would have returned. A call on a tracked tensor is recorded now.
---@param timeout? number seconds; an error "timeout" leaves the call going on
---@return any
function Handle:wait(timeout)
  if timeout ~= nil and type(timeout) ~= "number" then
    core.raise("argument", "wait", "timeout: expected seconds, got " .. type(timeout))
  end
  if self._finish then
    for _, work in ipairs(self._pending) do work:wait(timeout) end
    local finish = self._finish
    self._result = finish()
    self._finish, self._pending = nil, nil
  end
  return self._result
end

--- Whether wait() would return, or raise, at once.
---@return boolean
function Handle:is_done()
  for _, work in ipairs(self._pending or NONE) do
    if not work:is_done() then return false end
  end
  return true
end

M.Handle = Handle

-- ---- one call ----

local function same(value) return value end

-- A rank that takes part without elements of its own.
local function set_absent(group, call, is_recorded)
  if is_recorded then
    core.raise("autodiff", call.kind, "contribute: a call that is recorded needs every rank's elements", "use ag.no_grad")
  end
  if not group.member.handle then
    core.raise("unsupported", call.kind, "contribute: expected a real job, got a simulated rank", "give neutral elements")
  end
  call.absent = true
end

-- Makes one call. Returns the result; with async a function that gives it once the call is done.
local function perform(group, call, opts, pending, is_recorded, after)
  local member, kind = group.member, call.kind
  call.algorithm, call.timeout = opts.algorithm, opts.timeout
  if opts.contribute == false then set_absent(group, call, is_recorded) end
  after = after or same
  if not opts.async then
    if not is_recorded then return after(member:run(call)) end
    return after(gradients.record(kind, group, call, function() return member:run(call) end, opts.requires_grad))
  end
  local work = member:start(call)
  pending[#pending + 1] = work
  return function()
    if not is_recorded then return after(work:wait()) end
    return after(gradients.record(kind, group, call, function() return work:wait() end, opts.requires_grad))
  end
end

local function refuse_tracked_out(owner, arg)
  core.raise("autodiff", owner, arg .. ": expected a call that is not recorded, got a tracked tensor",
    "use the result, or put the call into ag.no_grad")
end

-- A call on a tensor: `fields` of the call, the place for the result.
local function on_tensor(owner, group, t, fields, opts, out, pending, after)
  local call = {kind = fields.kind, op = fields.op, root = fields.root, counts = fields.counts, like = fields.like,
                output_counts = fields.output_counts, input = t}
  local is_recorded = gradients.is_recorded(t, opts.requires_grad)
  if out ~= nil then
    if not core.is_tensor(out) then core.raise("argument", owner, "out: expected a tensor, got " .. type(out)) end
    if is_recorded or (out.requires_grad and core.is_grad_enabled()) then refuse_tracked_out(owner, "out") end
    call.out = out:detach()
    local own_after = after or same
    after = function(result)
      own_after(result)
      return result and out
    end
  end
  return perform(group, call, opts, pending, is_recorded, after)
end

local function number_after(is_list)
  return function(result)
    if not result then return nil end
    if is_list then return result:tolist() end
    return result:item()
  end
end

local LIST_KINDS = {all_gather = true, gather = true}
local NUMBER_KINDS = {all_reduce = true, broadcast = true, reduce = true, all_gather = true, gather = true}

-- A call on whatever the user gave: a tensor, a number, or a table of them.
local function on_value(owner, group, value, fields, opts)
  local is_single = core.is_tensor(value) and not opts.async
  local is_plain = is_single and opts.out == nil and not fields.of and opts.contribute ~= false
  if is_plain and not gradients.is_recorded(value, opts.requires_grad) then
    fields.input, fields.algorithm, fields.timeout = value, opts.algorithm, opts.timeout
    return group.member:run(fields)
  end
  local pending = {}
  local function leaf(x, out, path)
    if type(x) == "number" then
      if not NUMBER_KINDS[fields.kind] or out ~= nil or owner:sub(-1) == "_" then
        core.raise("argument", owner, ("expected a tensor%s, got a number"):format(path ~= "" and " at " .. path or ""))
      end
      local t = core.tensor(x, {dtype = "f64"})
      return on_tensor(owner, group, t, fields, opts, nil, pending, number_after(LIST_KINDS[fields.kind]))
    end
    local leaf_fields = fields.of and fields.of(x) or fields
    return on_tensor(owner, group, x, leaf_fields, opts, out, pending)
  end
  if is_single then return leaf(value, opts.out, "") end
  local result = tables.map(owner, value, leaf, opts.out)
  if not opts.async then return result end
  return Handle(pending, function() return tables.finish(result) end)
end

-- ---- the kinds ----

--- The op ("sum", "mean", "min", "max", "prod"; of bool tensors "and", "or") over the ranks' tensors, on every rank. With
-- contribute = false this rank takes part, but its elements do not count (a mean is still over all ranks): for ranks that
-- have run out of work, in `shadow` of job:each for instance. The same goes for all_reduce_, reduce and reduce_scatter.
---@param group argand.dist.Group
---@param t any tensor, number, or nested table of them
---@param opts? table {op, contribute = true, async, out, timeout, algorithm}
---@return any
function M.all_reduce(group, t, opts)
  opts = read("all_reduce", opts)
  return on_value("all_reduce", group, t, {kind = "all_reduce", op = opts.op}, opts)
end

local function repeats_elements(x)
  local strides = x:strides()
  for dim, size in ipairs(x:shape()) do
    if size > 1 and strides[dim] == 0 then return true end
  end
  return false
end

-- In place: the result goes to the tensor itself, through a contiguous copy when it is strided.
local function in_place(owner, kind, group, t, fields, opts)
  local pending = {}
  fields.kind = kind
  local function leaf(x, _, path)
    if not core.is_tensor(x) then
      core.raise("argument", owner, ("expected a tensor%s, got a number"):format(path ~= "" and " at " .. path or ""))
    end
    if x.requires_grad and core.is_grad_enabled() then refuse_tracked_out(owner, "tensor") end
    local is_direct = x.is_contiguous
    if not is_direct and repeats_elements(x) then
      core.raise("state", owner, "expected a tensor with memory of its own for each element, got a view that repeats elements",
        "clone() gives one")
    end
    local plain = x:detach()
    return on_tensor(owner, group, plain, fields, opts, is_direct and plain or nil, pending, function(result)
      if not is_direct then plain:copy_(result) end
      return x
    end)
  end
  local result = tables.map(owner, t, leaf)
  if not opts.async then return t end
  return Handle(pending, function()
    tables.finish(result)
    return t
  end)
end

--- all_reduce into the tensors themselves; returns what was given. Under ag.no_grad for tracked tensors.
---@param group argand.dist.Group
---@param t any
---@param opts? table {op, async, timeout, algorithm}
---@return any
function M.all_reduce_(group, t, opts)
  opts = read("all_reduce_", opts)
  return in_place("all_reduce_", "all_reduce", group, t, {op = opts.op}, opts)
end

--- As all_reduce, with the result on rank `root` only; nil elsewhere.
---@param group argand.dist.Group
---@param t any
---@param opts? table {op, root = 0, async, out, timeout, algorithm}
---@return any
function M.reduce(group, t, opts)
  opts = read("reduce", opts)
  local root = check_rank("reduce", "root", opts.root or 0, group)
  return on_value("reduce", group, t, {kind = "reduce", op = opts.op, root = root}, opts)
end

--- The tensors of rank `root`, on every rank. All give tensors of the same shapes; only root's elements count.
---@param group argand.dist.Group
---@param t any
---@param opts? table {root = 0, async, out, requires_grad, timeout, algorithm}; requires_grad: it is recorded on other ranks
---@return any
function M.broadcast(group, t, opts)
  opts = read("broadcast", opts)
  local root = check_rank("broadcast", "root", opts.root or 0, group)
  return on_value("broadcast", group, t, {kind = "broadcast", root = root}, opts)
end

--- broadcast into the tensors themselves; returns what was given. Under ag.no_grad for tracked tensors.
---@param group argand.dist.Group
---@param t any
---@param opts? table {root = 0, async, timeout, algorithm}
---@return any
function M.broadcast_(group, t, opts)
  opts = read("broadcast_", opts)
  local root = check_rank("broadcast_", "root", opts.root or 0, group)
  return in_place("broadcast_", "broadcast", group, t, {root = root}, opts)
end

-- Whole numbers from all ranks, exact.
local function gather_counts(group, kind, numbers)
  local t = core.tensor(numbers, {dtype = "i64"})
  return group.member:run({kind = kind, input = t}):tolist()
end

--- The ranks' tensors one after the other along the first dim, on every rank. uneven: the first dims may differ; they are
-- exchanged first. 0-d tensors and numbers count as one row.
---@param group argand.dist.Group
---@param t any
---@param opts? table {uneven = false, async, out, timeout, algorithm}
---@return any
function M.all_gather(group, t, opts)
  opts = read("all_gather", opts)
  local fields = {kind = "all_gather"}
  if opts.uneven then
    fields.of = function(x)
      if x.ndim == 0 then
        core.raise("shape", "all_gather", "expected a tensor with a first dim, got a 0-d one", "leave uneven away")
      end
      return {kind = "all_gather", counts = gather_counts(group, "all_gather", {x:size(1)})}
    end
  end
  return on_value("all_gather", group, t, fields, opts)
end

--- As all_reduce, of which each rank gets its part of the first dim; the number of ranks divides that.
---@param group argand.dist.Group
---@param t any
---@param opts? table {op, async, out, timeout, algorithm}
---@return any
function M.reduce_scatter(group, t, opts)
  opts = read("reduce_scatter", opts)
  return on_value("reduce_scatter", group, t, {kind = "reduce_scatter", op = opts.op}, opts)
end

--- As all_gather, with the result on rank `root` only; nil elsewhere.
---@param group argand.dist.Group
---@param t any
---@param opts? table {root = 0, async, out, timeout, algorithm}
---@return any
function M.gather(group, t, opts)
  opts = read("gather", opts)
  local root = check_rank("gather", "root", opts.root or 0, group)
  return on_value("gather", group, t, {kind = "gather", root = root}, opts)
end

-- Where a rank gives nothing, what the result is like: like, out, or shape and dtype. Returns walkable, out.
local function model_of(owner, opts)
  if opts.like ~= nil then return opts.like, opts.out end
  if opts.out ~= nil then return opts.out, opts.out end
  if opts.shape == nil then
    core.raise("argument", owner, "expected what comes: like, out, or shape (and dtype), got none of them")
  end
  return core.empty(opts.shape, {dtype = opts.dtype or "f32"}), nil
end

-- Calls whose result is like `model`, without an input.
local function on_model(owner, group, fields, opts)
  local model, out = model_of(owner, opts)
  local pending = {}
  local result = tables.map(owner, model, function(like, place, path)
    if not core.is_tensor(like) then
      core.raise("argument", owner, ("expected a tensor%s, got a number"):format(path ~= "" and " at " .. path or ""))
    end
    fields.like = like
    return on_tensor(owner, group, nil, fields, opts, place, pending)
  end, out)
  if not opts.async then return result end
  return Handle(pending, function() return tables.finish(result) end)
end

--- Parts of the first dim of root's tensors, one for each rank. Other ranks give nil and say what comes.
---@param group argand.dist.Group
---@param t any nil but on root
---@param opts? table {root = 0, like, shape, dtype, async, out, requires_grad, timeout, algorithm}
---@return any
function M.scatter(group, t, opts)
  opts = read("scatter", opts)
  local root = check_rank("scatter", "root", opts.root or 0, group)
  local fields = {kind = "scatter", root = root}
  if group:rank() == root then return on_value("scatter", group, t, fields, opts) end
  return on_model("scatter", group, fields, opts)
end

-- Shape the same on all ranks; counts: rows to each.
local function check_counts(group, counts)
  local size = group:size()
  if #counts ~= size then
    core.raise("value", "all_to_all", ("counts: expected rows for each of %d ranks, got %d numbers"):format(size, #counts))
  end
  for _, count in ipairs(counts) do
    if type(count) ~= "number" or count < 0 or count ~= math.floor(count) then
      core.raise("value", "all_to_all", "counts: expected whole numbers >= 0, got " .. tostring(count))
    end
  end
  return counts
end

--- Part i of the first dim goes to rank i; returns what comes from all, in rank order. counts: how many rows go to each rank
-- (without: equal parts); how many come is exchanged first.
---@param group argand.dist.Group
---@param t any
---@param opts? table {counts, async, out, timeout, algorithm}
---@return any
function M.all_to_all(group, t, opts)
  opts = read("all_to_all", opts)
  local fields = {kind = "all_to_all"}
  if opts.counts then
    fields.counts = check_counts(group, opts.counts)
    fields.output_counts = gather_counts(group, "all_to_all", opts.counts)
  end
  return on_value("all_to_all", group, t, fields, opts)
end

--- all_to_all with both lists known: backward's.
---@param group argand.dist.Group
---@param t argand.Tensor
---@param counts integer[]
---@param output_counts integer[]
---@return argand.Tensor
function M.all_to_all_counted(group, t, counts, output_counts)
  return on_value("all_to_all", group, t, {kind = "all_to_all", counts = counts, output_counts = output_counts}, NONE)
end

--- Sends tensors to rank `to`, which calls receive. Returns nothing, but a 0-d zero for the loss when the call is recorded.
---@param group argand.dist.Group
---@param t any
---@param to integer
---@param opts? table {async, timeout}
---@return any
function M.send(group, t, to, opts)
  opts = read("send", opts)
  return on_value("send", group, t, {kind = "send", root = check_rank("send", "to", to, group)}, opts)
end

--- What rank `from` sends; like, out, or shape and dtype say what comes. requires_grad: the sender's tensor is tracked.
---@param group argand.dist.Group
---@param from integer
---@param opts table {like, out, shape, dtype, async, requires_grad, timeout}
---@return any
function M.receive(group, from, opts)
  opts = read("receive", opts)
  return on_model("receive", group, {kind = "receive", root = check_rank("receive", "from", from, group)}, opts)
end

--- Returns once all ranks have called it.
---@param group argand.dist.Group
---@param opts? table {async, timeout}
---@return argand.dist.Handle?
function M.barrier(group, opts)
  opts = read("barrier", opts)
  local pending = {}
  local result = perform(group, {kind = "barrier"}, opts, pending, false)
  if opts.async then return Handle(pending, result) end
end

gradients.set_collectives(M)

return M
