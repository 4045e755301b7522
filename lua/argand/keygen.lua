--- keygen: `argand keygen FILE`: makes a key with which the ranks of a job know each other and encrypt.
local core = require "argand.core"

local M = {}

---@param args string[]
---@return integer exit_code
function M.main(args)
  local path = args[1]
  if not path or args[2] or path:sub(1, 1) == "-" then
    io.stderr:write("usage: argand keygen FILE   writes a new key; FILE must not exist, and only its owner can read it\n")
    return 2
  end
  local _, err = core.dist.keygen(path)
  if err then error(err, 0) end
  return 0
end

return M
