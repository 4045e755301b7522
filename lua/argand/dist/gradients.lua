--- gradients: collectives on tracked tensors. The loss whose gradients come out is the sum of the losses of all ranks.
--
-- Each is a custom function whose backward is a collective, too, and so every rank has to run backward through it, in the
-- same order. Where a rank gets no result (reduce and gather off the root, send) a tracked call gives a 0-d zero, which takes
-- part in the loss for it: `loss = loss + dist.send(x, 1)`. Backward of backward is recorded, but for scatter, send and
-- receive, where the ranks that give nothing have nothing to go through.
local core = require "argand.core"
local ag = require "argand"

local M = {}

-- collectives.lua, which needs this file first.
local collectives

-- What backward has to know of a call, without its tensors: those would hold the graph.
local function settings_of(group, call, x, result)
  return {
    group = group, op = call.op or "sum", root = call.root, counts = call.counts, output_counts = call.output_counts,
    is_root = call.root == group:rank(), shape = x and x:shape(), dtype = (x or result).dtype,
    result_shape = result and result:shape(), algorithm = call.algorithm,
  }
end

local function zeros(shape, dtype) return ag.zeros(shape, {dtype = dtype}) end

-- The gradient of an extreme goes to the elements that are it, in equal shares over all ranks. y is the whole result, and g
-- its gradient, the same on all ranks.
local function share(s, x, y, g)
  local part = core.no_grad(function()
    local mask = x:eq(y):logical_or(x:isnan():logical_and(y:isnan())):to(s.dtype)
    return mask / collectives.all_reduce(s.group, mask)
  end)
  return g * part
end

-- The product of the other ranks' x, which division by x would not give where x is 0.
local function product_of_others(s, x)
  local shape = x:shape()
  table.insert(shape, 1, 1)
  local all, own, product = collectives.all_gather(s.group, x:reshape(shape)), s.group:rank(), nil
  for rank = 0, s.group:size() - 1 do
    if rank ~= own then
      local factor = all:select(1, rank + 1)
      product = product and product * factor or factor
    end
  end
  return product
end

local function times_others(s, x, g)
  local product = product_of_others(s, x)
  return product and g * product or g
end

-- From the gradient of a whole reduction, the same on all ranks, to that of this rank's input.
local function of_reduction(s, x, y, g)
  if s.op == "sum" then return g end
  if s.op == "mean" then return g / s.group:size() end
  if s.op == "prod" then return times_others(s, x, g) end
  return share(s, x, y, g)
end

-- How a rank that gives nothing takes part in a call of backward that is recorded itself: through its own zero of the forward
-- call, so that backward of backward comes by there.
local function tie_of(y)
  return core.is_grad_enabled() and (y or true) or false
end

-- What root has, on all ranks.
local function from_root(s, t, y)
  return collectives.broadcast(s.group, s.is_root and t or zeros(s.shape, s.dtype), {root = s.root, requires_grad = tie_of(y)})
end

local function refuse_twice(name)
  if core.is_grad_enabled() then
    core.raise("autodiff", name, "expected one backward pass, got create_graph",
      "use all_to_all or broadcast, which can be differentiated twice")
  end
end

local is_extreme = {min = true, max = true}
local needs_values = {min = true, max = true, prod = true}

-- backward[kind](settings, gradient, x, y): the gradient of x. x and y are there for reductions that are no sum or mean; y too
-- where it is the zero of a rank without a result.
local backward = {}

function backward.all_reduce(s, g, x, y)
  local sum = collectives.all_reduce(s.group, g, {algorithm = s.algorithm})
  return of_reduction(s, x, y, sum)
end

function backward.reduce(s, g, x, y)
  local whole, result = from_root(s, g, not s.is_root and y), nil
  if is_extreme[s.op] then result = core.no_grad(from_root, s, y) end
  return of_reduction(s, x, result, whole)
end

function backward.broadcast(s, g)
  local sum = collectives.reduce(s.group, g, {root = s.root})
  if s.is_root then return sum end
  local none = zeros(s.shape, s.dtype)
  return sum and none + sum or none
end

function backward.all_gather(s, g)
  if not s.counts then return collectives.reduce_scatter(s.group, g):reshape(s.shape) end
  local size = s.group:size()
  local own, counts = s.counts[s.group:rank() + 1], {}
  for i = 1, size do counts[i] = own end
  local parts = collectives.all_to_all_counted(s.group, g, s.counts, counts)
  local shape = {size, unpack(s.shape)}
  return parts:reshape(shape):sum(1)
end

function backward.reduce_scatter(s, g, x, y)
  local whole = collectives.all_gather(s.group, g)
  local result = is_extreme[s.op] and core.no_grad(collectives.all_gather, s.group, y)
  return of_reduction(s, x, result, whole)
end

function backward.gather(s, g, _, y)
  local like = zeros(s.shape, s.dtype)
  if #s.shape == 0 then like = like:reshape(1) end
  return collectives.scatter(s.group, s.is_root and g or nil,
    {root = s.root, like = like, requires_grad = tie_of(not s.is_root and y)}):reshape(s.shape)
end

function backward.scatter(s, g)
  refuse_twice("scatter")
  return collectives.gather(s.group, g, {root = s.root})
end

function backward.all_to_all(s, g)
  if not s.counts then return collectives.all_to_all(s.group, g) end
  return collectives.all_to_all_counted(s.group, g, s.output_counts, s.counts)
end

function backward.send(s)
  refuse_twice("send")
  return collectives.receive(s.group, s.root, {like = zeros(s.shape, s.dtype)})
end

function backward.receive(s, g)
  refuse_twice("receive")
  collectives.send(s.group, g, s.root)
end

local functions = {}

-- Arguments of a recorded function: the input or nil, an anchor (a tracked nothing, for ranks whose input is untracked) or
-- nil, group, call, and what gives the result.
for kind, fn in pairs(backward) do
  functions[kind] = ag.Function {
    name = kind,
    forward = function(ctx, x, anchor, group, call, produce)
      local y = produce()
      ctx.settings = settings_of(group, call, x, y)
      ctx.has_input, ctx.anchor_dtype = x ~= nil, anchor and anchor.dtype
      local result = y or zeros({}, x.dtype)
      if needs_values[call.op] then ctx:save(x, result) elseif not y and kind ~= "send" then ctx:save(nil, result) end
      return result
    end,
    backward = function(ctx, g)
      local s = ctx.settings
      local grad = fn(s, g or zeros(s.result_shape or {}, s.dtype), ctx.saved[1], ctx.saved[2])
      local none = ctx.anchor_dtype and zeros({}, ctx.anchor_dtype)
      if ctx.has_input then return grad, none end
      return none
    end,
  }
end

--- Whether this call is to be recorded.
---@param x? argand.Tensor
---@param declared? boolean|argand.Tensor the caller says that the call is recorded on other ranks
---@return boolean
function M.is_recorded(x, declared)
  return (declared or (x ~= nil and x.requires_grad)) and core.is_grad_enabled() and true or false
end

--- Records a call whose result produce() gives, untracked; nil when this rank has none.
---@param kind string
---@param group argand.dist.Group
---@param call table
---@param produce fun(): argand.Tensor?
---@param declared? boolean|argand.Tensor a 0-d tensor that the result then depends on
---@return argand.Tensor
function M.record(kind, group, call, produce, declared)
  local x = call.input
  local anchor = core.is_tensor(declared) and declared or nil
  if not anchor and not (x and x.requires_grad) then anchor = ag.zeros({}, {requires_grad = true}) end
  return functions[kind](x, anchor, group, call, produce)
end

--- Whether there is a gradient for this kind of call.
---@param kind string
---@return boolean
function M.has(kind) return backward[kind] ~= nil end

--- Called once by collectives.lua.
---@param module table
function M.set_collectives(module) collectives = module end

return M
