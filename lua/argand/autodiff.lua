--- autodiff: functions with a gradient of their own, and segments that are recomputed in backward.
local core = require "argand.core"

local M = {}

local function pack(...) return {...}, select("#", ...) end

-- The tensors among the first `count` values, and their places.
local function tensors_of(values, count)
  local tensors, places = {}, {}
  for i = 1, count do
    if core.is_tensor(values[i]) then
      tensors[#tensors + 1] = values[i]
      places[#places + 1] = i
    end
  end
  return tensors, places
end

-- Handles of our own, which scopes and free() leave alone, and the versions the tensors have now.
local function keep_all(values, count)
  local kept, versions = {}, {}
  for i = 1, count do
    local value = values[i]
    if core.is_tensor(value) then
      kept[i] = core.keep(value)
      versions[i] = value.version
    else
      kept[i] = value
    end
  end
  return kept, versions
end

local function check_versions(name, what, kept, versions)
  for i, version in pairs(versions) do
    if kept[i].version ~= version then
      core.raise("stale", name, ("%s %d was changed in place since: version %d, saved at %d"):format(
        what, i, kept[i].version, version), "change a clone instead: t:clone(), or change it after backward")
    end
  end
end

local Context = {}
Context.__index = Context

--- Keeps tensors for backward, which finds them as ctx.saved; they are freed once backward is through with them. Results
-- of the function belong here too, not in other fields of ctx: there they would hold the graph that holds ctx.
---@param ... argand.Tensor
function Context:save(...)
  local saved, count = pack(...)
  self._num_saved = count
  self._originals = saved
end

-- Once forward is through: what is saved becomes handles of our own; a result is kept with its position and without its place
-- in the graph, since that would be a cycle.
local function settle_saved(ctx, outputs)
  local count = ctx._num_saved or 0
  local originals = ctx._originals or {}
  ctx._originals = nil
  ctx.saved, ctx._versions = keep_all(originals, count)
  ctx._positions = {}
  for i = 1, count do
    for k, output in ipairs(outputs) do
      if core.is_tensor(originals[i]) and rawequal(originals[i], output) then
        ctx.saved[i] = core.keep(output:detach())
        ctx._positions[i] = k
      end
    end
  end
end

local function run_backward(spec, name, ctx, ...)
  check_versions(name, "saved tensor", ctx.saved, ctx._versions)
  if not core.is_grad_enabled() then return spec.backward(ctx, ...) end
  local plain, tied = ctx.saved, {}
  for i = 1, ctx._num_saved or 0 do
    local position = ctx._positions[i]
    tied[i] = position and core.custom_tie(plain[i], position) or plain[i]
  end
  ctx.saved = tied -- for this call only
  local function restore(ok, ...)
    ctx.saved = plain
    if not ok then error((...), 0) end
    return ...
  end
  return restore(pcall(spec.backward, ctx, ...))
end

--- A differentiable function of the user.
-- forward(ctx, ...) computes its results without being recorded; backward(ctx, grad, ...) gets one gradient for each tensor
-- among the results (nil = zero) and returns one (or nil) for each tensor among the arguments. With create_graph,
-- backward's own ops are recorded.
---@param spec {name: string?, forward: function, backward: function}
---@return function
local function Function(spec)
  if type(spec) ~= "table" or type(spec.forward) ~= "function" or type(spec.backward) ~= "function" then
    core.raise("argument", "Function", "expected {forward = function, backward = function}")
  end
  local name = spec.name or "Function"
  return function(...)
    local args, count = pack(...)
    local ctx = setmetatable({}, Context)
    local inputs = tensors_of(args, count)
    local results, num_results = pack(core.no_grad(spec.forward, ctx, ...))
    local outputs, places = tensors_of(results, num_results)
    for i, t in ipairs(outputs) do
      for _, input in ipairs(inputs) do
        if rawequal(t, input) then -- a result that is an argument gets a handle of its own
          outputs[i] = t:detach()
          results[places[i]] = outputs[i]
        end
      end
    end
    settle_saved(ctx, outputs)
    local function backward(...) return run_backward(spec, name, ctx, ...) end
    core.custom(name, inputs, outputs, backward, false, ctx.saved)
    return unpack(results, 1, num_results)
  end
end

--- checkpoint(fn, ...): calls fn without keeping what its backward would need; backward runs fn again. fn must do the same
-- again: numbers from the default generator are replayed, other outside state is not. Tensors that fn uses without
-- getting them as arguments (parameters) receive their gradients as usual.
---@param fn function
---@param ... any its arguments
---@return any ... what fn returns
local function checkpoint(fn, ...)
  if type(fn) ~= "function" then core.raise("argument", "checkpoint", "fn: expected a function, got " .. type(fn)) end
  if not core.is_grad_enabled() then return fn(...) end
  local random = core.random_state()
  local results, num_results = pack(core.no_grad(fn, ...))
  local args, count = pack(...)
  local inputs = tensors_of(args, count)
  local kept, versions = keep_all(args, count)
  local outputs, places = tensors_of(results, num_results)
  for i, t in ipairs(outputs) do
    outputs[i] = t:detach()
    results[places[i]] = outputs[i]
  end

  local function run_again()
    local now = core.random_state()
    core.set_random_state(random)
    local list, n = pack(pcall(core.enable_grad, fn, unpack(kept, 1, count)))
    core.set_random_state(now)
    if not list[1] then error(list[2], 0) end
    return tensors_of(list, n)
  end

  -- The inputs' gradients come from the replay, which starts at the inputs themselves.
  local function backward(...)
    check_versions("checkpoint", "argument", kept, versions)
    local grads = {...}
    local roots, seeds = {}, {}
    for i, t in ipairs((run_again())) do
      if grads[i] and t.requires_grad then
        roots[#roots + 1] = t
        seeds[#seeds + 1] = grads[i]
      end
    end
    core.backward_inner(roots, seeds)
  end

  core.custom("checkpoint", inputs, outputs, backward, true, kept)
  return unpack(results, 1, num_results)
end

--- Adds these functions to the module.
---@param ag table
function M.install(ag)
  ag.Function = Function
  ag.checkpoint = checkpoint
end

return M
