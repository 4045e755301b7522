--- gradcheck: gradients of a sample's calls against central differences in f64.
--
-- The loss is sum(weights * result) over all float results, with fixed weights. Differences perturb the base of an input, so
-- that a value used many times (a broadcast input) is moved everywhere at once; base gradients pass through the views.
local core = require "argand.core"
local ag = require "argand"
local approx = require "support.approx"
local samples = require "support.samples"

local M = {}

local function is_float(t) return approx.kinds[t.dtype] == "float" end

--- Names of the parameters of an op that gradients are checked for.
local function differentiated(sample, info)
  if sample.grads then return sample.grads end
  local names = {}
  for _, param in ipairs(info.params) do
    if param.type == "any" or param.type == "num" or param.type == "float" or param.type == "any[]" then
      names[#names + 1] = param.name
    end
  end
  return names
end

-- Fixed numbers in [-1, 1), another for each element.
local function weights_like(t, shift)
  local count = tonumber(t:numel())
  local w = ag.empty({count}, {dtype = "f64"})
  if count > 0 then
    local p = w:data()
    for i = 0, count - 1 do p[i] = ((i * 37 + shift * 11) % 64) / 32 - 0.984375 end
  end
  return w:reshape(t:shape()):to(t.dtype):to(t.device)
end

-- The loss as a tensor; nil when no result is tracked.
local function loss_of(results)
  local loss
  for i, y in ipairs(results) do
    if is_float(y) then
      local term = (y * weights_like(y, i)):sum()
      loss = loss and loss + term or term
    end
  end
  return loss
end

-- A call ready to be evaluated again and again: evaluate() builds args from the bases as they now are.
local function prepare(op, call, options)
  local sample, info = samples.load(op), core.op_info(op)
  local args, inputs = samples.build(op, call, options)
  local wanted, checked = {}, {}
  for _, name in ipairs(differentiated(sample, info)) do wanted[name] = true end
  for _, input in ipairs(inputs) do
    if wanted[input.name] and is_float(input.base) then checked[#checked + 1] = input end
  end
  local function arguments()
    local now = {}
    for k, v in pairs(args) do now[k] = v end
    for _, input in ipairs(inputs) do if input.is_list then now[input.name] = {} end end
    for _, input in ipairs(inputs) do
      local value = input.view(input.base)
      for _, name in ipairs(sample.mutates or {}) do if name == input.name then value = value:clone() end end
      if input.is_list then now[input.name][input.at] = value else now[input.name] = value end
    end
    return now
  end
  return arguments, checked
end

local function evaluate(op, arguments)
  return loss_of(samples.run(op, arguments()))
end

--- Gradients of the loss by each checked input's base. options: {dtype, device, layout, create_graph}.
function M.gradients(op, call, options)
  local arguments, checked = prepare(op, call, options)
  local bases = {}
  for i, input in ipairs(checked) do
    input.base.requires_grad = true
    bases[i] = input.base
  end
  if #bases == 0 then return {}, checked, arguments end
  local loss = evaluate(op, arguments)
  if not loss or not loss.requires_grad then error("the result is not tracked", 0) end
  local grads = ag.grad(loss, bases, {create_graph = options.create_graph or false, allow_unused = true})
  return grads, checked, arguments
end

local function value_at(t, k) return t:data()[k] end

-- Compares grads[i] with differences of f() by element k of each base; f returns a number.
local function compare(checked, grads, f, options)
  local h = options.step
  for i, input in ipairs(checked) do
    local count = tonumber(input.base:numel())
    local grad = grads[i]
    if grad then
      local got, wanted = approx.shape_text(grad), approx.shape_text(input.base)
      if got ~= wanted then error(("gradient of %s: got %s, expected %s"):format(input.name, got, wanted), 0) end
      grad = grad:detach():contiguous()
    end
    local p = count > 0 and input.base:data()
    for k = 0, count - 1 do
      local x = p[k]
      p[k] = x + h
      local above = f()
      p[k] = x - h
      local below = f()
      p[k] = x
      local expected = (above - below) / (2 * h)
      local actual = grad and value_at(grad, k) or 0
      if not (math.abs(actual - expected) <= options.tolerance * math.max(1, math.abs(expected))) then
        error(("%s of %s at element %d (value %.6g): got %.10g, finite differences give %.10g"):format(
          options.what, input.name, k + 1, x, actual, expected), 0)
      end
    end
  end
end

--- First derivatives against central differences.
function M.first_order(op, call, options)
  options.dtype = "f64"
  local grads, checked, arguments = M.gradients(op, call, options)
  compare(checked, grads, function()
    return ag.no_grad(function()
      local loss = evaluate(op, arguments)
      return loss:item()
    end)
  end, {step = 1e-6, tolerance = options.tolerance or 2e-7, what = "gradient"})
  return #checked
end

-- sum over inputs of <gradient, fixed weights>
local function combine(grads)
  local total
  for i, g in ipairs(grads) do
    local term = (g * weights_like(g, 7 + i)):sum()
    total = total and total + term or term
  end
  return total
end

local function packed(grads, count)
  local list = {}
  for i = 1, count do if grads[i] then list[#list + 1] = grads[i] end end
  return list
end

--- Second derivatives: the gradient of <gradient, weights> against differences of first derivatives.
function M.second_order(op, call, options)
  options.dtype, options.create_graph = "f64", true
  local grads, checked, arguments = M.gradients(op, call, options)
  local bases = {}
  for i, input in ipairs(checked) do bases[i] = input.base end
  if #bases == 0 then return 0 end
  local total = combine(packed(grads, #bases))
  local second = total.requires_grad and ag.grad(total, bases, {allow_unused = true}) or {}
  compare(checked, second, function()
    local first = ag.grad(evaluate(op, arguments), bases, {allow_unused = true})
    return combine(packed(first, #bases)):item()
  end, {step = 1e-6, tolerance = options.tolerance or 2e-6, what = "second derivative"})
  return #checked
end

--- Gradients in options.dtype by the backward kernels, and those by ops (create_graph), against those in f64.
function M.agree(op, call, options)
  local dtype, tolerance = options.dtype, options.ulps * approx.eps[options.dtype]
  local function run(as, create_graph)
    return M.gradients(op, call, {dtype = as, device = options.device, layout = options.layout, create_graph = create_graph})
  end
  local fused, checked = run(dtype, false)
  local composed, wide = run(dtype, true), run("f64", false)
  for i, input in ipairs(checked) do
    local limit = {tolerance = tolerance, magnitude = 1}
    if fused[i] and wide[i] then
      local peak = tonumber(wide[i]:numel()) > 0 and wide[i]:abs():amax():item() or 0
      limit.magnitude = math.max(1, peak)
      local ok, err = pcall(approx.check, fused[i]:to("f64"), wide[i], limit)
      if not ok then error(("gradient of %s by kernels: %s"):format(input.name, err), 0) end
      ok, err = pcall(approx.check, composed[i]:detach():to("f64"), wide[i], limit)
      if not ok then error(("gradient of %s by ops: %s"):format(input.name, err), 0) end
    elseif fused[i] or wide[i] then
      error(("gradient of %s: present in one dtype only"):format(input.name), 0)
    end
  end
  return #checked
end

return M
