--- autodiff: functions with a gradient of their own, and segments that are recomputed in backward.
local core = require "argand.core"

local M = {}

-- Splits arguments into the tensors among them, which take part in differentiation, and their places.
local function tensors_of(args, count)
  local tensors, places = {}, {}
  for i = 1, count do
    if core.is_tensor(args[i]) then
      tensors[#tensors + 1] = args[i]
      places[#places + 1] = i
    end
  end
  return tensors, places
end

local function pack(...) return {...}, select("#", ...) end

local context_methods = {}
context_methods.__index = context_methods

--- Keeps tensors for backward, found there as ctx.saved.
function context_methods:save(...)
  self.saved = {...}
  self.versions = {}
  for i, t in ipairs(self.saved) do self.versions[i] = core.is_tensor(t) and t.version or 0 end
end

local function check_saved(ctx, name)
  for i, t in ipairs(ctx.saved or {}) do
    if core.is_tensor(t) and t.version ~= ctx.versions[i] then
      core.raise("stale", name, ("saved tensor %d was changed in place since: version %d, saved at %d"):format(
        i, t.version, ctx.versions[i]))
    end
  end
end

--- A differentiable function of the user.
-- forward(ctx, ...) computes untracked results; backward(ctx, grad, ...) returns one gradient (or nil) for each tensor argument.
-- With create_graph, backward's own ops are recorded.
---@param spec {name: string?, forward: function, backward: function}
---@return function
local function Function(spec)
  if type(spec) ~= "table" or type(spec.forward) ~= "function" or type(spec.backward) ~= "function" then
    core.raise("argument", "Function", "expected {forward = function, backward = function}")
  end
  local name = spec.name or "Function"
  return function(...)
    local args, count = pack(...)
    local ctx = setmetatable({}, context_methods)
    local inputs = tensors_of(args, count)
    local results, num_results = pack(core.no_grad(spec.forward, ctx, ...))
    local outputs = tensors_of(results, num_results)
    for i, t in ipairs(outputs) do -- a result that is an input gets a handle of its own
      for _, input in ipairs(inputs) do
        if rawequal(t, input) then
          local alias = t:detach()
          outputs[i] = alias
          for k = 1, num_results do if rawequal(results[k], t) then results[k] = alias end end
        end
      end
    end
    core.custom(name, inputs, outputs, function(...)
      check_saved(ctx, name)
      return spec.backward(ctx, ...)
    end, false)
    return unpack(results, 1, num_results)
  end
end

--- checkpoint(fn, ...): calls fn without keeping what its backward would need; backward runs fn again. fn must do the same
-- again: random numbers are replayed, other outside state is not. Tensors that fn uses without getting them as arguments
-- (parameters) receive their gradients as usual.
local function checkpoint(fn, ...)
  if type(fn) ~= "function" then core.raise("argument", "checkpoint", "fn: expected a function, got " .. type(fn)) end
  if not core.is_grad_enabled() then return fn(...) end
  local args, count = pack(...)
  local inputs, places = tensors_of(args, count)
  local random = core.random_state()
  local results, num_results = pack(core.no_grad(fn, ...))
  local outputs, result_places = tensors_of(results, num_results)
  for i, t in ipairs(outputs) do
    outputs[i] = t:detach()
    results[result_places[i]] = outputs[i]
  end

  local function backward(...)
    local grads = {...}
    local again, replay = {}, {}
    for i = 1, count do again[i] = args[i] end
    for i, place in ipairs(places) do
      replay[i] = inputs[i]:detach()
      if inputs[i].requires_grad then replay[i].requires_grad = true end
      again[place] = replay[i]
    end
    local now = core.random_state()
    core.set_random_state(random)
    local function run()
      local list, n = pack(core.enable_grad(fn, unpack(again, 1, count)))
      local second = tensors_of(list, n)
      local root -- one scalar whose gradient is the given one: sum over outputs of <output, grad>
      for i, t in ipairs(second) do
        if grads[i] and t.requires_grad then
          local term = core.enable_grad(function() return (t * grads[i]):sum() end)
          root = root and core.enable_grad(function() return root + term end) or term
        end
      end
      if root then root:backward() end
    end
    local ok, err = pcall(run)
    core.set_random_state(now)
    if not ok then error(err, 0) end
    local result = {}
    for i = 1, #inputs do result[i] = replay[i].grad end
    return unpack(result, 1, #inputs)
  end

  core.custom("checkpoint", inputs, outputs, backward, true)
  return unpack(results, 1, num_results)
end

function M.install(ag)
  ag.Function = Function
  ag.checkpoint = checkpoint
end

return M
