--- Gradient clipping, in place.

local ag = require "argand"
local core = require "argand.core"
local options = require "argand.options"

local M = {}

local function grads_of(owner, params)
  if type(params) ~= "table" then
    core.raise("argument", owner, "params: expected a list of tensors, got " .. type(params))
  end
  local grads = {}
  for position, parameter in ipairs(params) do
    if not core.is_tensor(parameter) then
      local message = ("params: expected tensors, got a %s at position %d"):format(type(parameter), position)
      core.raise("argument", owner, message)
    end
    grads[#grads + 1] = parameter.grad
  end
  return grads
end

local function require_limit(owner, name, value)
  if not options.is_between(value, 0) then
    core.raise("value", owner, ("%s: expected a number >= 0, got %s"):format(name, tostring(value)))
  end
end

--- Scales all gradients by one factor so that their common 2-norm is at most max_norm. A norm that is not
--- finite leaves them as they are: test what is returned.
---@param params argand.Tensor[]
---@param max_norm number
---@return number norm before clipping
function M.clip_grad_norm(params, max_norm)
  require_limit("clip_grad_norm", "max_norm", max_norm)
  local grads = grads_of("clip_grad_norm", params)
  if #grads == 0 then return 0 end
  return ag.no_grad(function()
    local norms = {}
    for position, grad in ipairs(grads) do
      local is_half = grad.dtype == "f16" or grad.dtype == "bf16" -- whose norm may not fit its dtype
      norms[position] = (is_half and grad:to "f32" or grad):norm()
    end
    local total = ag.stack(norms):norm():item()
    if total > max_norm and total < math.huge then
      for _, grad in ipairs(grads) do grad:mul_(max_norm / (total + 1e-6)) end
    end
    return total
  end)
end

--- Limits every element of the gradients to [-max_value, max_value].
---@param params argand.Tensor[]
---@param max_value number
function M.clip_grad_value(params, max_value)
  require_limit("clip_grad_value", "max_value", max_value)
  ag.no_grad(function()
    for _, grad in ipairs(grads_of("clip_grad_value", params)) do grad:clamp_(-max_value, max_value) end
  end)
end

return M
